#pragma once
// What each verb does; the exit code.

#include "client/session.h"
#include "client/verbs.h"

namespace talon::client {

int create(Session& session, const Words& words);
int list(Session& session, const Words& words);
int get(Session& session, const Words& words);
int rm(Session& session, const Words& words);
int exec(Session& session, const Words& words);
int spawn(Session& session, const Words& words);
int logs(Session& session, const Words& words);
int pty(Session& session, const Words& words);
int change(Session& session, const Words& words);  // pause, resume, start
int stop(Session& session, const Words& words);
int version(Session& session, const Words& words);

}  // namespace talon::client
