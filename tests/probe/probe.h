// probe: a small static program that tests run inside sandboxes as their payload. It looks at
// itself (ids, capabilities, namespaces, descriptors, mounts), tries what must be refused, and
// makes load. Every finding is one JSON object a line on stdout, so that tests in any language
// read it alike. It judges nothing: what a result should be is the test's business.
//
// Exit codes: 0 ran, whatever it found; 2 usage; other codes where a command says so.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One command of the command line.
struct command {
  const char* name;
  const char* help;                   // "ARGS: what it prints or does"
  int (*run)(int argc, char** argv);  // argv[0] is the command's name
};

// One thing to try: returns the call's result, errno set when it is negative. Runs in a child of
// its own, so that a success or a deadly signal harms nothing.
struct attempt {
  const char* name;
  const char* help;
  long (*run)(int argc, char** argv);  // argv[0] is the attempt's name
};

// Families; each table ends with an entry without a name.
extern const struct command identity_commands[];
extern const struct command view_commands[];
extern const struct command load_commands[];
extern const struct command process_commands[];
extern const struct command trap_commands[];
extern const struct command neighbour_commands[];
extern const struct attempt namespace_attempts[];
extern const struct attempt mount_attempts[];
extern const struct attempt kernel_attempts[];
extern const struct attempt socket_attempts[];
extern const struct attempt process_attempts[];
extern const struct attempt terminal_attempts[];
extern const struct attempt trap_attempts[];
extern const struct attempt neighbour_attempts[];

// {"a":…,"b":…} on one line: begin, members, end.
void json_begin(void);
void json_text(const char* name, const char* value);
void json_number(const char* name, long long value);
void json_hex(const char* name, uint64_t value);  // as a string, 16 digits
void json_bool(const char* name, bool value);
// "result", "errno" and "name" ("OK", "EPERM", …) of a call.
void json_outcome(long result, int error);
void json_end(void);

const char* error_name(int error);  // "EPERM"; "OK" for 0

// Parses a whole number or ends with usage.
long long number_or_exit(const char* text);
