// JSON lines. Values come from hostile or binary places (mountinfo, links), so bytes that are no
// printable ASCII are escaped as \u00XX.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

static bool first;

void json_begin(void) {
  first = true;
  putchar('{');
}

static void string(const char* s) {
  putchar('"');
  for (; *s != '\0'; ++s) {
    const unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') {
      printf("\\%c", c);
    } else if (c < 0x20 || c > 0x7e) {
      printf("\\u%04x", c);
    } else {
      putchar(c);
    }
  }
  putchar('"');
}

static void key(const char* name) {
  if (!first) {
    putchar(',');
  }
  first = false;
  string(name);
  putchar(':');
}

void json_text(const char* name, const char* value) {
  key(name);
  string(value);
}

void json_number(const char* name, long long value) {
  key(name);
  printf("%lld", value);
}

void json_hex(const char* name, uint64_t value) {
  key(name);
  printf("\"%016llx\"", (unsigned long long)value);
}

void json_bool(const char* name, bool value) {
  key(name);
  fputs(value ? "true" : "false", stdout);
}

const char* error_name(int error) {
  const char* name = error == 0 ? "OK" : strerrorname_np(error);
  return name != NULL ? name : "unknown";
}

void json_outcome(long result, int error) {
  json_number("result", result);
  json_number("errno", error);
  json_text("name", error_name(error));
}

void json_end(void) {
  puts("}");
  fflush(stdout);
}

long long number_or_exit(const char* text) {
  char* end = NULL;
  errno = 0;
  const long long value = strtoll(text, &end, 0);
  if (errno != 0 || end == text || *end != '\0') {
    fprintf(stderr, "probe: `%s` is no number\n", text);
    exit(2);
  }
  return value;
}
