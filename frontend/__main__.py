"""`python -m gluonjit` is the `gluonjit` command, for when the script's folder is not on PATH."""

import sys

from gluonjit.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
