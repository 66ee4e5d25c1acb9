"""The numerics, compiled when the package is built: one idea a file, plain Python that also runs uncompiled."""
