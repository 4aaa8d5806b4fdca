#pragma once
// Probes that make something to know whether it can be made. Each returns 0 or an errno, and
// leaves nothing: what it makes has no name or belongs to a child that has ended. The children call
// the kernel only, so a program of many threads may ask.

namespace talon::isolate::probe {

// A rule with `tproxy` in a network namespace of a child's own.
int tproxy();
// An id-mapped mount of the directory (mount_setattr(2)).
int idmapped_mount(int dir);
// Whether the kernel shares blocks between files of the directory's file system (FICLONE).
bool reflink(int dir);
// Whether limits of project quota hold on the directory's file system (quotactl(2)).
bool project_quota(int dir);

}  // namespace talon::isolate::probe
