// The TOML layer of the configuration. The only file that includes toml++.

// NOLINTBEGIN: macros of the library.
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>
// NOLINTEND

#include <algorithm>

#include "config.h"

namespace talon {

namespace {

std::string place_of(const std::string& file, const toml::source_region& region) {
  return file + ":" + std::to_string(region.begin.line);
}

const ConfigKey* find_key(std::string_view name) {
  const auto& keys = config_keys();
  const auto found =
      std::ranges::find_if(keys, [&](const ConfigKey& key) { return key.key == name; });
  return found == keys.end() || found->key == "config" ? nullptr : &*found;
}

std::unexpected<Error> wrong_type(const std::string& place, const ConfigKey& key) {
  const std::string_view wanted = key.type == "list"   ? "a list of texts"
                                  : key.type == "bool" ? "true or false"
                                  : key.type == "text" ? "a text in quotes"
                                                       : "a whole number";
  return bad_field(std::string{key.key},
                   place + ": " + std::string{key.key} + " must be " + std::string{wanted});
}

Result<Setting> setting_of(const ConfigKey& key, const toml::node& node, const std::string& place) {
  Setting setting{.values = {}, .place = place};
  if (key.type == "list") {
    const toml::array* list = node.as_array();
    // One text stands for a list of one.
    if (const auto* single = node.as_string(); single != nullptr) {
      setting.values.push_back(single->get());
      return setting;
    }
    if (list == nullptr) {
      return wrong_type(place, key);
    }
    for (const toml::node& item : *list) {
      if (!item.is_string()) {
        return wrong_type(place, key);
      }
      setting.values.push_back(item.as_string()->get());
    }
    return setting;
  }
  if (key.type == "bool" && node.is_boolean()) {
    setting.values.emplace_back(node.as_boolean()->get() ? "true" : "false");
  } else if (key.type == "text" && node.is_string()) {
    setting.values.push_back(node.as_string()->get());
  } else if (key.type == "number" && node.is_integer()) {
    setting.values.push_back(std::to_string(node.as_integer()->get()));
  } else {
    return wrong_type(place, key);
  }
  return setting;
}

Result<> collect(const toml::table& table, const std::string& prefix, const std::string& file,
                 Settings& settings) {
  for (const auto& [name, node] : table) {
    const std::string full = prefix + std::string{name.str()};
    const std::string place = place_of(file, name.source());
    const bool is_section = std::ranges::any_of(config_keys(), [&](const ConfigKey& key) {
      return key.key.size() > full.size() && key.key.starts_with(full) &&
             key.key[full.size()] == '.';
    });
    if (is_section && node.is_table()) {
      TALON_CHECK(collect(*node.as_table(), full + ".", file, settings));
      continue;
    }
    const ConfigKey* key = find_key(full);
    if (key == nullptr) {
      return bad_field(full, place + ": unknown key " + full +
                                 "; see talond serve --help for the keys that exist");
    }
    TALON_TRY(setting, setting_of(*key, node, place));
    settings.insert_or_assign(full, std::move(setting));
  }
  return {};
}

}  // namespace

Result<Settings> parse_config(std::string_view text, const std::string& name) {
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed) {
    return fail(Code::invalid_request, place_of(name, parsed.error().source()) + ": " +
                                           std::string{parsed.error().description()});
  }
  Settings settings;
  TALON_CHECK(collect(parsed.table(), "", name, settings));
  return settings;
}

}  // namespace talon
