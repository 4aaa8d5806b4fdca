#include "server/api/openapi.h"

namespace talon::server::api {

namespace {
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc23-extensions"
constexpr unsigned char kYaml[] = {
#embed "../../../api/openapi.yaml"
};
constexpr unsigned char kJson[] = {
#embed "../../../api/openapi.json"
};
#pragma clang diagnostic pop
}  // namespace

std::string_view openapi_yaml() { return {reinterpret_cast<const char*>(kYaml), sizeof kYaml}; }
std::string_view openapi_json() { return {reinterpret_cast<const char*>(kJson), sizeof kJson}; }

}  // namespace talon::server::api
