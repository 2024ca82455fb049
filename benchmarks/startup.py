"""Start-up: importing sumosurv against importing torch, in fresh processes; and that help needs no torch.

python benchmarks/startup.py --out results
"""

import subprocess
import sys
import time

from _measure import arguments, keep, show
from _measure import start as begin

SNIPPETS = {
    "python alone": "pass",
    "import torch": "import torch",
    "import sumosurv": "import sumosurv",
    "from sumosurv import SumoNet": "from sumosurv import SumoNet",
    "sumosurv --help": "import sys; sys.argv = ['sumosurv', '--help']\nfrom sumosurv.cli import main\nmain()",
}
HELP = (
    "import sys, contextlib, io\nfrom sumosurv.cli import main\n"
    "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
    "print('torch' in sys.modules)"
)


def fresh(code):
    """Seconds of a new process."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main():
    options = arguments(__doc__).parse_args()
    begin(options)
    repeats = 3 if options.quick else 7
    found = dict.fromkeys(SNIPPETS, float("inf"))
    for _ in range(repeats):  # turn by turn, so that a busy moment of the machine meets all of them
        for name, code in SNIPPETS.items():
            found[name] = min(found[name], fresh(code))
    torch_alone = found["import torch"]
    rows = [{"what": name, "seconds": spent, "of import torch": spent / torch_alone} for name, spent in found.items()]
    show(rows, ("what", "seconds", "of import torch"))
    answer = subprocess.run([sys.executable, "-c", HELP], check=True, capture_output=True, text=True).stdout.strip()
    print(f"help imports torch: {answer}")
    keep(options, "startup", {"repeats": repeats}, {"rows": rows, "help_imports_torch": answer == "True"})


if __name__ == "__main__":
    main()
