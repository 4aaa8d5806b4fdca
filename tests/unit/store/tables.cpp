// Every table: what is written comes back; another tenant's row is no row.
#include "fixture.h"

using namespace talon;
using namespace talon::store;
using namespace store_test;

TEST_CASE_METHOD(Fixture, "tenants: by name, and a name once") {
  REQUIRE(write([](Db& db) { return insert_tenant(db, {"tn1", "default", 42}); }).has_value());
  const auto found = read([](Db& db) { return find_tenant_by_name(db, "default"); });
  REQUIRE(found->has_value());
  CHECK((*found)->id == "tn1");
  CHECK((*found)->created_ms == 42);
  CHECK_FALSE(read([](Db& db) { return find_tenant_by_name(db, "Default"); })->has_value());
  const auto twice = write([](Db& db) { return insert_tenant(db, {"tn2", "default", 43}); });
  CHECK(twice.error().code == Code::conflict);
  CHECK(twice.error().message == "a tenant named \"default\" exists already");
}

TEST_CASE_METHOD(Fixture, "keys: round trip with and without the optional values") {
  const ApiKeyRow plain{.id = "ky1",
                        .tenant = "tn1",
                        .name = "ci",
                        .role = "owner",
                        .hash = "aa",
                        .hint = "wxyz",
                        .sandbox = {},
                        .created_ms = 5,
                        .expires_ms = {},
                        .revoked_ms = {},
                        .last_used_ms = {}};
  ApiKeyRow scoped = plain;
  scoped.id = "ky2";
  scoped.hash = "bb";
  scoped.sandbox = "sb1";
  scoped.expires_ms = 99;
  scoped.last_used_ms = 7;
  REQUIRE(write([&](Db& db) { return insert_key(db, plain); }).has_value());
  REQUIRE(write([&](Db& db) { return insert_key(db, scoped); }).has_value());

  const auto a = *read([](Db& db) { return find_key_by_hash(db, "aa"); });
  REQUIRE(a.has_value());
  CHECK(a->id == "ky1");
  CHECK(a->tenant == "tn1");
  CHECK(a->name == "ci");
  CHECK(a->role == "owner");
  CHECK(a->hint == "wxyz");
  CHECK_FALSE(a->sandbox.has_value());
  CHECK_FALSE(a->expires_ms.has_value());
  const auto b = *read([](Db& db) { return find_key_by_hash(db, "bb"); });
  REQUIRE(b.has_value());
  CHECK(b->sandbox == "sb1");
  CHECK(b->expires_ms == 99);
  CHECK(b->last_used_ms == 7);
  CHECK_FALSE(read([](Db& db) { return find_key_by_hash(db, "cc"); })->has_value());

  ApiKeyRow same_hash = plain;
  same_hash.id = "ky3";
  CHECK(write([&](Db& db) { return insert_key(db, same_hash); }).error().code == Code::conflict);
}

TEST_CASE_METHOD(Fixture, "keys: listed by tenant in pages, revoked once, only by their tenant") {
  for (int i = 0; i < 5; ++i) {
    const ApiKeyRow row{.id = "ky" + std::to_string(i),
                        .tenant = i == 3 ? "other" : "tn1",
                        .name = "k",
                        .role = "viewer",
                        .hash = "h" + std::to_string(i),
                        .hint = "",
                        .sandbox = {},
                        .created_ms = i,
                        .expires_ms = {},
                        .revoked_ms = {},
                        .last_used_ms = {}};
    REQUIRE(write([&](Db& db) { return insert_key(db, row); }).has_value());
  }
  const auto first = *read([](Db& db) { return list_keys(db, "tn1", "", 2); });
  REQUIRE(first.size() == 2);
  CHECK(first[0].id == "ky0");
  CHECK(first[1].id == "ky1");
  const auto rest = *read([](Db& db) { return list_keys(db, "tn1", "ky1", 10); });
  REQUIRE(rest.size() == 2);
  CHECK(rest[0].id == "ky2");
  CHECK(rest[1].id == "ky4");

  CHECK(write([](Db& db) { return revoke_key(db, "tn1", "ky3", 50); }).error().code ==
        Code::not_found);
  CHECK(write([](Db& db) { return revoke_key(db, "tn1", "ky9", 50); }).error().code ==
        Code::not_found);
  REQUIRE(write([](Db& db) { return revoke_key(db, "tn1", "ky0", 50); }).has_value());
  REQUIRE(write([](Db& db) { return revoke_key(db, "tn1", "ky0", 60); }).has_value());
  REQUIRE(write([](Db& db) { return touch_key(db, "ky0", 70); }).has_value());
  const auto row = **read([](Db& db) { return find_key_by_hash(db, "h0"); });
  CHECK(row.revoked_ms == 50);
  CHECK(row.last_used_ms == 70);
  CHECK_FALSE((*read([](Db& db) { return find_key_by_hash(db, "h3"); }))->revoked_ms.has_value());
}

TEST_CASE_METHOD(Fixture, "sandboxes: the whole row comes back and an update bumps the version") {
  SandboxRow row = sandbox("sb1", "tn1", 1000);
  row.name = "build";
  row.operation = "create";
  row.image_generation = 4'000'000'000U;
  row.spec_json = R"({"a":"ä"})";
  row.labels_json = R"({"k":"v"})";
  row.identity_json = "i";
  row.applied_json = "l";
  row.certificate_json = "c";
  row.workspace = "ws1";
  row.created_by = "ky1";
  row.updated_ms = 2000;
  row.expires_ms = 3000;
  REQUIRE(write([&](Db& db) { return insert_sandbox(db, row); }).has_value());
  const auto got = *read([](Db& db) { return get_sandbox(db, "tn1", "sb1"); });
  CHECK(got.name == "build");
  CHECK(got.state == "running");
  CHECK(got.operation == "create");
  CHECK(got.image == "host");
  CHECK(got.image_generation == 4'000'000'000U);
  CHECK(got.spec_json == R"({"a":"ä"})");
  CHECK(got.labels_json == R"({"k":"v"})");
  CHECK(got.identity_json == "i");
  CHECK(got.applied_json == "l");
  CHECK(got.certificate_json == "c");
  CHECK(got.workspace == "ws1");
  CHECK(got.created_by == "ky1");
  CHECK(got.created_ms == 1000);
  CHECK(got.updated_ms == 2000);
  CHECK(got.expires_ms == 3000);
  CHECK_FALSE(got.ended_ms.has_value());
  CHECK(got.version == 1);

  SandboxRow changed = got;
  changed.state = "deleted";
  changed.ended_ms = 4000;
  changed.expires_ms.reset();
  REQUIRE(write([&](Db& db) { return update_sandbox(db, changed); }).has_value());
  const auto after = *read([](Db& db) { return get_sandbox(db, "tn1", "sb1"); });
  CHECK(after.state == "deleted");
  CHECK(after.ended_ms == 4000);
  CHECK_FALSE(after.expires_ms.has_value());
  CHECK(after.version == 2);
}

TEST_CASE_METHOD(Fixture, "sandboxes: another tenant's row looks exactly like no row") {
  REQUIRE(write([](Db& db) { return insert_sandbox(db, sandbox("sb1", "tn1")); }).has_value());
  const auto foreign = read([](Db& db) { return get_sandbox(db, "tn2", "sb1"); });
  const auto missing = read([](Db& db) { return get_sandbox(db, "tn2", "sb2"); });
  CHECK(foreign.error().code == Code::not_found);
  CHECK(missing.error().code == Code::not_found);
  CHECK(foreign.error().message == "no sandbox sb1");
  CHECK(missing.error().message == "no sandbox sb2");
  CHECK(read([](Db& db) { return get_sandbox(db, "", "sb1"); }).has_value());
  SandboxRow stolen = sandbox("sb1", "tn2");
  stolen.state = "deleted";
  CHECK(write([&](Db& db) { return update_sandbox(db, stolen); }).error().code == Code::not_found);
  CHECK(read([](Db& db) { return get_sandbox(db, "tn1", "sb1"); })->state == "running");
}

TEST_CASE_METHOD(Fixture, "sandboxes: a name is unique among the alive ones of one tenant") {
  const auto named = [](std::string id, std::string tenant) {
    SandboxRow row = sandbox(std::move(id), std::move(tenant));
    row.name = "web";
    return row;
  };
  REQUIRE(write([&](Db& db) { return insert_sandbox(db, named("sb1", "tn1")); }).has_value());
  const auto twice = write([&](Db& db) { return insert_sandbox(db, named("sb2", "tn1")); });
  CHECK(twice.error().code == Code::conflict);
  CHECK(twice.error().message == "the name \"web\" is taken by another sandbox");
  CHECK(write([&](Db& db) { return insert_sandbox(db, named("sb3", "tn2")); }).has_value());
  // Nameless ones never collide.
  CHECK(write([](Db& db) { return insert_sandbox(db, sandbox("sb4", "tn1")); }).has_value());
  CHECK(write([](Db& db) { return insert_sandbox(db, sandbox("sb5", "tn1")); }).has_value());
  // Taking a name by update collides as well.
  SandboxRow rename = sandbox("sb4", "tn1");
  rename.name = "web";
  CHECK(write([&](Db& db) { return update_sandbox(db, rename); }).error().code == Code::conflict);
  // Deleting frees it.
  SandboxRow gone = named("sb1", "tn1");
  gone.state = "deleted";
  REQUIRE(write([&](Db& db) { return update_sandbox(db, gone); }).has_value());
  CHECK(write([&](Db& db) { return insert_sandbox(db, named("sb6", "tn1")); }).has_value());
}

TEST_CASE_METHOD(Fixture, "workspaces: round trip, tenants, names") {
  const WorkspaceRow row{.id = "ws1",
                         .tenant = "tn1",
                         .name = "src",
                         .is_private = false,
                         .generation = 3,
                         .created_ms = 10,
                         .deleted_ms = {}};
  REQUIRE(write([&](Db& db) { return insert_workspace(db, row); }).has_value());
  const auto got = *read([](Db& db) { return get_workspace(db, "tn1", "ws1"); });
  CHECK(got.name == "src");
  CHECK_FALSE(got.is_private);
  CHECK(got.generation == 3);
  CHECK(got.created_ms == 10);
  CHECK_FALSE(got.deleted_ms.has_value());
  CHECK(read([](Db& db) { return get_workspace(db, "tn2", "ws1"); }).error().code ==
        Code::not_found);
  WorkspaceRow twin = row;
  twin.id = "ws2";
  CHECK(write([&](Db& db) { return insert_workspace(db, twin); }).error().code == Code::conflict);
  twin.is_private = true;
  CHECK(write([&](Db& db) { return insert_workspace(db, twin); }).has_value());
  WorkspaceRow gone = row;
  gone.deleted_ms = 77;
  gone.generation = 4;
  REQUIRE(write([&](Db& db) { return update_workspace(db, gone); }).has_value());
  CHECK(read([](Db& db) { return get_workspace(db, "tn1", "ws1"); })->deleted_ms == 77);
  CHECK(read([](Db& db) { return get_workspace(db, "tn1", "ws1"); })->generation == 4);
  gone.tenant = "tn2";
  CHECK(write([&](Db& db) { return update_workspace(db, gone); }).error().code == Code::not_found);
}

TEST_CASE_METHOD(Fixture, "execs: an upsert replaces, and an exited exec stays exited") {
  const ExecRow row{.id = "px1",
                    .sandbox = "sb1",
                    .tenant = "tn1",
                    .state = "running",
                    .spec_json = "{}",
                    .pid = 7,
                    .result_json = "",
                    .started_ms = 5,
                    .ended_ms = {}};
  REQUIRE(write([&](Db& db) { return upsert_exec(db, row); }).has_value());
  ExecRow ended = row;
  ended.state = "exited";
  ended.result_json = R"({"exit_code":3})";
  ended.ended_ms = 9;
  REQUIRE(write([&](Db& db) { return upsert_exec(db, ended); }).has_value());
  REQUIRE(write([&](Db& db) { return upsert_exec(db, row); }).has_value());  // late
  const auto got = *read([](Db& db) { return get_exec(db, "tn1", "sb1", "px1"); });
  CHECK(got.state == "exited");
  CHECK(got.result_json == R"({"exit_code":3})");
  CHECK(got.pid == 7);
  CHECK(got.started_ms == 5);
  CHECK(got.ended_ms == 9);
  CHECK(read([](Db& db) { return get_exec(db, "tn2", "sb1", "px1"); }).error().code ==
        Code::not_found);
  CHECK(read([](Db& db) { return get_exec(db, "tn1", "sb2", "px1"); }).error().code ==
        Code::not_found);
  // An id does not move to another tenant.
  ExecRow stolen = ended;
  stolen.tenant = "tn2";
  stolen.result_json = "stolen";
  REQUIRE(write([&](Db& db) { return upsert_exec(db, stolen); }).has_value());
  CHECK(read([](Db& db) { return get_exec(db, "tn1", "sb1", "px1"); })->result_json ==
        R"({"exit_code":3})");
  REQUIRE(
      write([](Db& db) { return set_exec_certificate(db, "sb2", "px1", "other"); }).has_value());
  REQUIRE(write([](Db& db) { return set_exec_certificate(db, "sb1", "px1", "why"); }).has_value());
  // What was asked for goes with the sandbox, what became of it stays.
  REQUIRE(write([](Db& db) { return retire_execs_of(db, "sb1"); }).has_value());
  const auto kept = *read([](Db& db) { return get_exec(db, "tn1", "sb1", "px1"); });
  CHECK(kept.spec_json == "{}");
  CHECK(kept.result_json == R"({"exit_code":3})");
  CHECK(kept.certificate_json == "why");
}

TEST_CASE_METHOD(Fixture, "events and audit: numbered, in order, by tenant, from a cursor") {
  REQUIRE(write([](Db& db) -> Result<> {
            TALON_CHECK(insert_event(db, {0, "tn1", "sb1", "sandbox.created", "{}", 1}));
            TALON_CHECK(insert_event(db, {0, "tn2", "sb2", "sandbox.created", "{}", 2}));
            TALON_CHECK(insert_event(db, {0, "tn1", "sb3", "exec.exited", R"({"c":1})", 3}));
            return insert_event(db, {0, "tn1", "sb1", "sandbox.deleted", "{}", 4});
          }).has_value());
  const auto all = *read([](Db& db) { return list_events(db, "tn1", "", 0, 10); });
  REQUIRE(all.size() == 3);
  CHECK(all[0].seq < all[1].seq);
  CHECK(all[1].type == "exec.exited");
  CHECK(all[1].data_json == R"({"c":1})");
  CHECK(all[1].at_ms == 3);
  const auto one = *read([](Db& db) { return list_events(db, "tn1", "sb1", 0, 10); });
  REQUIRE(one.size() == 2);
  CHECK(one[1].type == "sandbox.deleted");
  CHECK(read([](Db& db) { return list_events(db, "tn2", "sb1", 0, 10); })->empty());
  CHECK(read([&](Db& db) { return list_events(db, "tn1", "sb1", one[0].seq, 10); })->size() == 1);
  CHECK(read([](Db& db) { return list_events(db, "", "", 0, 10); })->size() == 4);

  REQUIRE(write([](Db& db) {
            return insert_audit(db, {.seq = 0,
                                     .tenant = "tn1",
                                     .actor = "ky1",
                                     .action = "createSandbox",
                                     .target = "sb1",
                                     .outcome = "denied",
                                     .status = 403,
                                     .request_id = "rq1",
                                     .remote = "127.0.0.1:9",
                                     .at_ms = 8});
          }).has_value());
  const auto audit = *read([](Db& db) { return list_audit(db, "tn1", 0, 10); });
  REQUIRE(audit.size() == 1);
  CHECK(audit[0].actor == "ky1");
  CHECK(audit[0].action == "createSandbox");
  CHECK(audit[0].target == "sb1");
  CHECK(audit[0].outcome == "denied");
  CHECK(audit[0].status == 403);
  CHECK(audit[0].request_id == "rq1");
  CHECK(audit[0].remote == "127.0.0.1:9");
  CHECK(audit[0].at_ms == 8);
  CHECK(read([](Db& db) { return list_audit(db, "tn2", 0, 10); })->empty());
  CHECK(read([](Db& db) { return list_audit(db, "", 0, 10); })->size() == 1);
}

TEST_CASE_METHOD(Fixture, "idempotency: claimed once, replayed, expired, dropped") {
  IdempotencyRow row{.tenant = "tn1",
                     .key = "k",
                     .route = "createSandbox",
                     .request_hash = "h1",
                     .status = 0,
                     .response = "",
                     .target = "",
                     .created_ms = 100};
  const auto claim = [&] { return *write([&](Db& db) { return claim_idempotency(db, row); }); };
  CHECK_FALSE(claim().has_value());
  row.request_hash = "h2";
  auto present = claim();
  REQUIRE(present.has_value());
  CHECK(present->request_hash == "h1");
  CHECK(present->status == 0);
  row.status = 201;
  row.response = "{\"id\":\"sb1\"}";
  row.target = "sb1";
  REQUIRE(write([&](Db& db) { return finish_idempotency(db, row); }).has_value());
  present = claim();
  REQUIRE(present.has_value());
  CHECK(present->status == 201);
  CHECK(present->response == "{\"id\":\"sb1\"}");
  CHECK(present->target == "sb1");
  CHECK(present->route == "createSandbox");
  CHECK(present->created_ms == 100);
  // The same key of another tenant is another key.
  row.tenant = "tn2";
  CHECK_FALSE(claim().has_value());
  REQUIRE(write([](Db& db) { return drop_idempotency(db, "tn2", "k"); }).has_value());
  CHECK_FALSE(claim().has_value());
  REQUIRE(write([](Db& db) { return expire_idempotency(db, 100); }).has_value());
  CHECK(claim().has_value());
  REQUIRE(write([](Db& db) { return expire_idempotency(db, 101); }).has_value());
  CHECK_FALSE(claim().has_value());
  row.key = "never claimed";
  CHECK(write([&](Db& db) { return finish_idempotency(db, row); }).error().code == Code::not_found);
}

TEST_CASE_METHOD(Fixture, "images and settings are replaced in place") {
  REQUIRE(write([](Db& db) { return upsert_image(db, {"host", 1, "{}", 5}); }).has_value());
  REQUIRE(write([](Db& db) { return upsert_image(db, {"host", 2, "a", 6}); }).has_value());
  REQUIRE(write([](Db& db) { return upsert_image(db, {"host", 2, "b", 7}); }).has_value());
  const auto images = *read([](Db& db) { return list_images(db); });
  REQUIRE(images.size() == 2);
  CHECK(images[1].generation == 2);
  CHECK(images[1].info_json == "b");
  CHECK_FALSE(read([](Db& db) { return get_setting(db, "instance"); })->has_value());
  REQUIRE(write([](Db& db) { return set_setting(db, "instance", "in1"); }).has_value());
  REQUIRE(write([](Db& db) { return set_setting(db, "instance", ""); }).has_value());
  CHECK(*read([](Db& db) { return get_setting(db, "instance"); }) == "");
}

TEST_CASE_METHOD(Fixture, "text keeps every byte, NUL and quotes included") {
  const std::string odd{"a\0b'\"\xff;--", 10};
  REQUIRE(write([&](Db& db) { return set_setting(db, odd, odd); }).has_value());
  CHECK(*read([&](Db& db) { return get_setting(db, odd); }) == odd);
}
