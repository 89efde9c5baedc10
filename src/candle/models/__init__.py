"""Architectures, one file each, written in `nn`."""
