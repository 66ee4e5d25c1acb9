"""The HTTP service: decisions and outcomes over the wire, tokens, metrics and the dashboard."""
