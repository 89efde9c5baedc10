"""Byte parsers that know no Tensor: hostile bytes to names, dtypes, shapes and offsets."""
