"""The texts of failures of host memory, and of a killed process: kernel, shell, launchers, schedulers, torch."""

from __future__ import annotations

from vramwise.diagnose.texts import failure

# -9 and 137 mean SIGKILL: a process does not do that to itself, the kernel's out-of-memory killer does.
HOST_TEXTS = (
    failure("host-killed", "exitcode", r"\bexitcode\s{0,8}[:=]\s{0,4}-9\b", anywhere=True),
    failure("host-killed", "return code", r"\bexits with return code = (?:-9|137)\b", anywhere=True),
    failure("host-killed", "SIGKILL", r"\bSignal 9 \(SIGKILL\) received by PID \d+", anywhere=True),
    failure("host-killed", "SIGKILL", r"\bdied with <Signals\.SIGKILL: 9>", anywhere=True),
    failure(
        "host-killed",
        "137",
        r"(?i)\bexit(?:ed)?(?: with)?(?: non-zero)? ?(?:code|status)\s?[:=]?\s?137\b",
        anywhere=True,
    ),
    failure("host-killed", "Killed", r"^Killed\s*$"),
    failure("host-killed", "Killed", r":\s+line \d+:\s+\d+ Killed\s", anywhere=True),
    failure("host-oom-killer", "illed process", r"\bOut of memory: Killed process \d+", anywhere=True),
    failure("host-oom-killer", "oom-kill", r"\boom-kill:constraint=", anywhere=True),
    failure("host-oom-killer", "oom_kill", r"\b[Dd]etected \d+ oom[_-]kill event", anywhere=True),
    failure("host-oom-killer", "OOMKilled", r"\bOOMKilled\b", anywhere=True),
    failure(
        "host-worker-killed",
        "DataLoader worker",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]{1,60}\) is killed by signal: Killed",
    ),
    failure(
        "host-shared-memory",
        "Bus error",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]{1,60}\) is killed by signal: Bus error",
    ),
    failure(
        "host-shared-memory",
        "insufficient shared memory",
        r"It is possible that dataloader's workers are out of shared memory|insufficient shared memory \(shm\)",
        anywhere=True,
    ),
    failure(
        "host-allocation",
        "DefaultCPUAllocator",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory: you tried to allocate (?P<bytes>\d{1,18}) bytes",
        anywhere=True,
    ),
    failure("host-allocation", "bad_alloc", r"std::bad_alloc", anywhere=True),
    failure("host-allocation", "MemoryError", r"(?:^|\.)(?:_Array)?MemoryError\b"),
    failure("host-allocation", "Cannot allocate memory", r"\[Errno 12\] Cannot allocate memory", anywhere=True),
)

# What other processes of the run say after one has failed: never a cause of its own.
AFTERMATH = (
    failure("aftermath", "ChildFailedError"),
    failure("aftermath", "exitcode", r"\bexitcode\s{0,8}[:=]\s{0,4}(?:1|-15|-6|134|143)\b", anywhere=True),
    failure("aftermath", "return code", r"\bexits with return code = [1-9-]", anywhere=True),
    failure("aftermath", "exit status", r"returned non-zero exit status \d+", anywhere=True),
    failure("aftermath", "Watchdog caught collective operation timeout", anywhere=True),
)
