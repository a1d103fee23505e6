"""The texts of failures of host memory, and of a killed process: kernel, shell, launchers, schedulers, torch."""

from __future__ import annotations

from vramwise.diagnosis.read.texts import failure

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
    failure("host-killed", "SIGKILL", r"\bprocess \d+ terminated (?:with|by) signal SIGKILL", anywhere=True),
    # Shells: bash in a script and for a job, zsh at once and for a job ("[1]" is taken off as a rank); make.
    failure("host-killed", "Killed", r"^Killed\s*$"),
    failure("host-killed", "Killed", r":\s+line \d+:\s+\d+ Killed\s", anywhere=True),
    failure("host-killed", "Killed", r"^[+-]?\s*(?:\d+ )?Killed\s{3,}\S"),
    failure("host-killed", "killed", r"^(?:zsh: |[+-]?\s*\d+ )killed\s{2,}\S"),
    failure("host-killed", "make", r"^make(?:\[\d+\])?: \*\*\* \[.{1,200}\] (?:Killed|Error 137)\s*$"),
    failure("host-oom-killer", "ut of memory", r"\b[Oo]ut of memory: Kill(?:ed)? process \d+", anywhere=True),
    failure("host-oom-killer", "oom-kill", r"\boom-kill:constraint=", anywhere=True),
    failure("host-oom-killer", "kill event", r"\b[Dd]etected \d+ oom[_-]kill event", anywhere=True),
    failure("host-oom-killer", "OOMKilled", r"\bOOMKilled\b", anywhere=True),
    failure("host-oom-killer", "Out Of Memory", r"\bsrun: error: .{1,120}: tasks? [\d,\-]{1,60}: Out Of Memory"),
    failure("host-oom-killer", "emory limit", r"\bslurmstepd\S{0,60}: error: .{0,60}[Ee]xceeded (?:\w+ )?memory limit"),
    failure("host-oom-killer", "job killed", r"\bPBS: job killed: v?mem \S+ exceeded limit", anywhere=True),
    failure("host-oom-killer", "TERM_MEMLIMIT", r"^TERM_MEMLIMIT\b"),
    failure(
        "host-oom-killer", "memory pressure", r"\d Workers? .{0,40}killed due to memory pressure \(OOM\)", anywhere=True
    ),
    failure("host-oom-killer", "running low on memory", r"killed due to the node running low on memory", anywhere=True),
    failure("host-bus-error", "code", r"\b(?:exitcode\s{0,8}[:=]|exits with return code =)\s{0,4}-7\b", anywhere=True),
    failure("host-worker-died", "One of the subprocesses has abruptly died during map operation"),
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
        r"insufficient shared memory \(shm\)",
        anywhere=True,
    ),
    failure("host-shared-memory", "workers are out of shared memory", anywhere=True),
    failure(
        "host-allocation",
        "DefaultCPUAllocator",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory: you tried to allocate (?P<bytes>\d{1,18}) bytes",
        anywhere=True,
    ),
    failure("host-allocation", "posix_memalign", r"posix_memalign\(.{1,60}\) == 0\. 12 vs 0", anywhere=True),
    failure("host-allocation", "bad_alloc", r"std::bad_alloc", anywhere=True),
    failure("host-allocation", "MemoryError", r"^(?:[\w.]{1,80}\.)?(?:_Array)?MemoryError\b"),
    failure("host-allocation", "Cannot allocate memory", r"\[Errno 12\] Cannot allocate memory", anywhere=True),
    failure(
        "host-allocation", "Cannot allocate memory", r"unable to mmap \d+ bytes .{1,400}Cannot allocate memory \(12\)"
    ),
    failure(
        "host-shared-memory",
        "No space left",
        r"unable to \w+ .{0,40}</torch_[^\s>]{1,80}>.{0,40}: No space left on device",
    ),
)

# What other processes of the run say after one has failed: never a cause of its own.
AFTERMATH = (
    failure("aftermath", "ChildFailedError", r"(?:[\w.]{1,120}\.)?ChildFailedError"),
    failure("aftermath", "CalledProcessError", r"^(?:subprocess\.)?CalledProcessError:"),
    failure("aftermath", "exitcode", r"\bexitcode\s{0,8}[:=]\s{0,4}-?[1-9]\d{0,3}\b", anywhere=True),
    failure("aftermath", "return code", r"\bexits with return code = [1-9-]", anywhere=True),
    failure("aftermath", "exit status", r"returned non-zero exit status \d+", anywhere=True),
    failure(
        "nccl-timeout",
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout(?:.{0,80}OpType=(?P<op>\w{1,40}))?",
        anywhere=True,
    ),
    failure("aftermath", "closing signal", r"\bSending process \d+ closing signal SIG", anywhere=True),
    # The end of a process that left no exception of Python's.
    failure("aftermath", "Fatal Python error", r"^Fatal Python error:"),
    failure("aftermath", "Segmentation fault", r":\s+line \d+:\s+\d+ Segmentation fault\s", anywhere=True),
    failure("aftermath", "Segmentation fault", r"^Segmentation fault(?: \(core dumped\))?\s*$"),
    failure("aftermath", "killed by signal", r"DataLoader worker \(pid\(?s?\)? [\d, ]{1,60}\) is killed by signal"),
    failure(
        "exception", "terminate called", r"^terminate called after throwing an instance of '(?P<name>[\w:]{1,120})'"
    ),
)
