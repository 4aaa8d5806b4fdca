#pragma once
// Mounting while talon-init is still root of the machine, in a mount namespace of its own: the
// image is hostile, so nothing inside the tree is reached through a symbolic link, and after
// each mask the target is looked at.

#include "isolate/init/sys.h"

namespace talon::init {

// What later steps need of earlier ones.
struct Setup {
  const unsigned char* base;
  char tree[256];  // where the tree is attached
  int proc = -1;   // the proc mount
  bool in_proc = false;
  char null_path[272];              // <tree>/dev/null, checked to be char 1:3
  const char* file_mask = nullptr;  // an earlier mask of the kind: its mount already has the flags
  const char* dir_mask = nullptr;
};

// fsopen + one option + fsmount with `attr`, moved onto the tree-relative directory `where`.
// Returns the mount's descriptor or -errno.
long mount_new(const Setup& s, const char* fs, const char* key, const char* value, unsigned attr,
               const char* where);

// Targets are relative to the proc mount; one that does not exist is skipped.
long mask_file(Setup& s, const char* target);      // the tree's null device over it
long mask_dir(Setup& s, const char* target);       // an empty read-only tmpfs over it
long proc_readonly(Setup& s, const char* target);  // itself, read-only

}  // namespace talon::init
