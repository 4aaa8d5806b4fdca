-- Schema 2: why an exec ended; what has been kept long enough is found without reading the rest.
ALTER TABLE execs ADD COLUMN certificate_json TEXT NOT NULL DEFAULT '';
CREATE INDEX sandboxes_deleted ON sandboxes (ended_ms) WHERE state = 'deleted';
