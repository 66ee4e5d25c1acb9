"""CISR (Turchetta et al. 2020), the comparison of the lake study: a teacher that intervenes, a student that learns."""
