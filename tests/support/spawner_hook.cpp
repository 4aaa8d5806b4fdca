// A test binary is its own spawner: the Launcher starts /proc/self/exe with argv[0]
// "talon-spawner", and Catch2 owns main, so a constructor looks first (glibc hands argc and argv
// to constructors).

#include "isolate/launch.h"

namespace {

__attribute__((constructor)) void become_spawner_if_asked(int argc, char** argv, char** /*env*/) {
  talon::isolate::spawner_main_if_asked(argc, argv);
}

}  // namespace
