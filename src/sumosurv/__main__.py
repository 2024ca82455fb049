"""``python -m sumosurv`` is the command ``sumosurv``."""

import sys

from sumosurv.cli import main

if __name__ == "__main__":
    sys.exit(main())
