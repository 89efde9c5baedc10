"""`python -m candle`: the command line."""

from __future__ import annotations

from candle_cli import main

if __name__ == "__main__":
    main()
