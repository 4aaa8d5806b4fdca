-- Schema 1. Times are Unix milliseconds; *_json columns hold text that the server's codecs wrote.
-- Every row carries its tenant. No foreign keys: rows of execs are written behind and may come
-- after the row of their sandbox was retired.

CREATE TABLE settings (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tenants (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
  id           TEXT PRIMARY KEY,
  tenant       TEXT NOT NULL,
  name         TEXT NOT NULL,
  role         TEXT NOT NULL,
  hash         TEXT NOT NULL UNIQUE,
  hint         TEXT NOT NULL,
  sandbox      TEXT,
  created_ms   INTEGER NOT NULL,
  expires_ms   INTEGER,
  revoked_ms   INTEGER,
  last_used_ms INTEGER
) STRICT;
CREATE INDEX api_keys_of_tenant ON api_keys (tenant, id);

CREATE TABLE sandboxes (
  id               TEXT PRIMARY KEY,
  tenant           TEXT NOT NULL,
  name             TEXT NOT NULL,
  state            TEXT NOT NULL,
  operation        TEXT NOT NULL,
  image            TEXT NOT NULL,
  image_generation INTEGER NOT NULL,
  spec_json        TEXT NOT NULL,
  labels_json      TEXT NOT NULL,
  identity_json    TEXT NOT NULL,
  applied_json     TEXT NOT NULL,
  certificate_json TEXT NOT NULL,
  workspace        TEXT NOT NULL,
  created_by       TEXT NOT NULL,
  created_ms       INTEGER NOT NULL,
  updated_ms       INTEGER NOT NULL,
  expires_ms       INTEGER,
  ended_ms         INTEGER,
  version          INTEGER NOT NULL
) STRICT;
-- A name is free again once its sandbox is deleted.
CREATE UNIQUE INDEX sandboxes_name ON sandboxes (tenant, name)
  WHERE name <> '' AND state <> 'deleted';
CREATE INDEX sandboxes_of_tenant ON sandboxes (tenant, created_ms, id);
CREATE INDEX sandboxes_by_time ON sandboxes (created_ms, id);
CREATE INDEX sandboxes_by_state ON sandboxes (state, tenant);

CREATE TABLE execs (
  id          TEXT PRIMARY KEY,
  sandbox     TEXT NOT NULL,
  tenant      TEXT NOT NULL,
  state       TEXT NOT NULL,
  spec_json   TEXT NOT NULL,
  pid         INTEGER NOT NULL,
  result_json TEXT NOT NULL,
  started_ms  INTEGER NOT NULL,
  ended_ms    INTEGER
) STRICT;
CREATE INDEX execs_of_sandbox ON execs (sandbox, started_ms, id);

CREATE TABLE workspaces (
  id         TEXT PRIMARY KEY,
  tenant     TEXT NOT NULL,
  name       TEXT NOT NULL,
  is_private INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  deleted_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX workspaces_name ON workspaces (tenant, name)
  WHERE name <> '' AND is_private = 0 AND deleted_ms IS NULL;

-- AUTOINCREMENT: a number is a cursor, so it is never given out twice, not even after a delete.
CREATE TABLE events (
  seq       INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant    TEXT NOT NULL,
  sandbox   TEXT NOT NULL,
  type      TEXT NOT NULL,
  data_json TEXT NOT NULL,
  at_ms     INTEGER NOT NULL
) STRICT;
CREATE INDEX events_of_tenant ON events (tenant, seq);
CREATE INDEX events_of_sandbox ON events (sandbox, seq);

CREATE TABLE audit (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant     TEXT NOT NULL,
  actor      TEXT NOT NULL,
  action     TEXT NOT NULL,
  target     TEXT NOT NULL,
  outcome    TEXT NOT NULL,
  status     INTEGER NOT NULL,
  request_id TEXT NOT NULL,
  remote     TEXT NOT NULL,
  at_ms      INTEGER NOT NULL
) STRICT;
CREATE INDEX audit_of_tenant ON audit (tenant, seq);

CREATE TABLE idempotency (
  tenant       TEXT NOT NULL,
  key          TEXT NOT NULL,
  route        TEXT NOT NULL,
  request_hash TEXT NOT NULL,
  status       INTEGER NOT NULL,
  response     TEXT NOT NULL,
  target       TEXT NOT NULL,
  created_ms   INTEGER NOT NULL,
  PRIMARY KEY (tenant, key)
) STRICT;
CREATE INDEX idempotency_by_time ON idempotency (created_ms);

CREATE TABLE images (
  name       TEXT NOT NULL,
  generation INTEGER NOT NULL,
  info_json  TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (name, generation)
) STRICT;
