"""What a record says of where it was made."""

import datetime
import pathlib
import platform
import sys


def machine(device):
    """Of a run on "cpu" or "cuda", in a program that has imported torch."""
    import torch

    import heed

    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        words = pathlib.Path("/proc/cpuinfo").read_text() if pathlib.Path("/proc/cpuinfo").exists() else ""
        models = [each.split(":")[1].strip() for each in words.splitlines() if each.startswith("model name")]
        name = f"{models[0] if models else platform.machine()}, {torch.get_num_threads()} threads"
    program = pathlib.Path(sys.argv[0]).resolve()
    root = pathlib.Path(__file__).resolve().parents[1]
    program = program.relative_to(root) if program.is_relative_to(root) else program.name
    return {
        "date": datetime.date.today().isoformat(),
        "device": name,
        "heed": heed.__version__,
        "torch": torch.__version__,
        "command": " ".join(["python", str(program), *sys.argv[1:]]),
    }
