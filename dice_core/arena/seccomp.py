"""A system call filter for the calling process, for ever: what no kernel needs is refused.

Classic BPF, put together here and given to the kernel by prctl(2). Most calls are refused with EPERM, so a library that
only tries finds another way; another architecture's calls end the process. Threads may be made, processes may not.
Sources: seccomp(2), the kernel's seccomp_filter documentation, the system call tables of x86-64 and of asm-generic.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Collection, Iterator

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_SET_MODE_FILTER, _FLAG_SPEC_ALLOW = 1, 4
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NR, _ARCH, _ARGUMENT = 0, 4, 16
_CLONE_THREAD = 0x10000
_AF_UNIX, _SOCK_DGRAM, _SOCK_TYPES = 1, 2, 0xF
#: prctl options that undo or get round what the sandbox did: death with the parent, subreaper, filters of its own,
#: system calls turned into signals, another process allowed to trace.
_PRCTL = (1, _PR_SET_SECCOMP, 35, 36, 59, 0x59616D61)

#: machine -> (audit architecture, system call of seccomp(2))
_MACHINES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
#: group -> name -> numbers on (x86-64, aarch64); None where arm has no such call
GROUPS: dict[str, dict[str, tuple[int, int | None]]] = {
    "other processes": {
        "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
        "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
        "process_madvise": (440, 440), "process_mrelease": (448, 448), "tkill": (200, 130), "kill": (62, 129),
        "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "prlimit64": (302, 261),
    },
    "kernel": {
        "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217),
        "request_key": (249, 218), "fanotify_init": (300, 262), "syslog": (103, 116), "personality": (135, 92),
        "modify_ldt": (154, None), "ioperm": (173, None), "iopl": (172, None), "kexec_load": (246, 104),
        "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
        "delete_module": (176, 106), "reboot": (169, 142), "acct": (163, 89), "quotactl": (179, 60),
        "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
        "seccomp": (317, 277), "prctl": (157, 167),
    },
    "file systems": {
        "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "swapon": (167, 224),
        "swapoff": (168, 225), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
        "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
        "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "unshare": (272, 97), "setns": (308, 268),
    },
    "network": {
        "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203),
    },
    #: Their pages count towards no limit of the process. CUDA's driver may need them.
    "memory files": {"memfd_create": (319, 279), "memfd_secret": (447, 447)},
    #: System V objects and POSIX queues outlive their process: a letterbox from one candidate to the next.
    "lasting objects": {
        "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190),
        "mq_open": (240, 180), "mq_unlink": (241, 181),
    },
    "scheduling": {
        "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
        "sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30),
    },
    "new processes": {
        "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435), "execve": (59, 221),
        "execveat": (322, 281),
    },
}  # fmt: skip
#: Calls of the groups above that are refused by their arguments, not always.
_BY_ARGUMENT = frozenset({
    "clone", "clone3", "kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "prlimit64", "prctl", "socket",
    "socketpair", "connect", "memfd_create",
})

_Instruction = tuple[int, int, int, int]


def install(*, unix_sockets: bool = False, groups: Collection[str] = tuple(GROUPS)) -> bool:
    """Put the filter on the calling thread and all that it starts; no_new_privs must be set. Whether that worked.

    Args:
        unix_sockets: sockets of the Unix family may be made (not connected): the CUDA driver listens on one.
        groups: which groups of calls to refuse.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return False
    program = b"".join(struct.pack("HBBI", *one) for one in _program(machine, unix_sockets, frozenset(groups)))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    # Without SPEC_ALLOW older kernels slow the process down against Spectre variant 4, which would show in timings.
    if libc.syscall(_MACHINES[machine][1], _SET_MODE_FILTER, _FLAG_SPEC_ALLOW, header) == 0:
        return True
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, header, 0, 0) == 0)


def _program(machine: str, unix_sockets: bool, groups: frozenset[str]) -> Iterator[_Instruction]:
    column = 0 if machine == "x86_64" else 1
    yield _LOAD, 0, 0, _ARCH
    yield _EQUAL, 1, 0, _MACHINES[machine][0]
    yield _RETURN, 0, 0, _KILL_PROCESS
    yield _LOAD, 0, 0, _NR
    if machine == "x86_64":  # the x32 numbers name the same calls once more
        yield _AT_LEAST, 0, 1, 0x40000000
        yield _RETURN, 0, 0, _KILL_PROCESS
    for group in GROUPS:
        if group not in groups:
            continue
        for name, numbers in GROUPS[group].items():
            number = numbers[column]
            if number is None:
                continue
            body = list(_by_argument(name, unix_sockets)) if name in _BY_ARGUMENT else [_refuse(errno.EPERM)]
            yield _EQUAL, 0, len(body), number
            yield from body
    yield _RETURN, 0, 0, _ALLOW


def _by_argument(name: str, unix_sockets: bool) -> Iterator[_Instruction]:
    """The rest of the program once `name` is known to be the call: always ends with a verdict."""
    allow, refuse = (_RETURN, 0, 0, _ALLOW), _refuse(errno.EPERM)
    if name == "clone":
        yield _argument(0)
        yield _ANY_BIT, 1, 0, _CLONE_THREAD
        yield refuse
        yield allow
    elif name == "clone3":  # its flags lie in memory, where a filter cannot look: the C library falls back to clone
        yield _refuse(errno.ENOSYS)
    elif name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        yield _argument(0)
        yield _EQUAL, 2, 0, os.getpid()
        yield _EQUAL, 1, 0, 0
        yield refuse
        yield allow
    elif name == "prlimit64":  # another process's limits
        yield _argument(0)
        yield _EQUAL, 1, 0, 0
        yield refuse
        yield allow
    elif name == "prctl":
        yield _argument(0)
        for option in _PRCTL:
            yield _EQUAL, 0, 1, option
            yield refuse
        yield allow
    elif name == "memfd_create":
        yield allow if unix_sockets else refuse
    elif name == "connect":  # what a driver expects that looks for a service which is not there
        yield _refuse(errno.ENOENT)
    else:
        if name == "socket" and not unix_sockets:
            yield refuse
            return
        yield _argument(0)
        yield _EQUAL, 1, 0, _AF_UNIX
        yield refuse
        yield _argument(1)
        yield _AND, 0, 0, _SOCK_TYPES
        yield _EQUAL, 0, 1, _SOCK_DGRAM  # a datagram socket needs no connection to send to anyone
        yield refuse
        yield allow


def _argument(index: int) -> _Instruction:
    """Load the low half of an argument (both machines are little-endian)."""
    return _LOAD, 0, 0, _ARGUMENT + 8 * index


def _refuse(code: int) -> _Instruction:
    return _RETURN, 0, 0, _ERRNO | code
