#include "schema.h"

#include <algorithm>
#include <set>

#include "server/api/openapi.h"

namespace talon::test {

namespace json = boost::json;

namespace {

const std::set<std::string> kIgnored{"description", "default",  "format",
                                     "title",       "examples", "example"};

bool has_type(const std::string& type, const json::value& value) {
  if (type == "string") {
    return value.is_string();
  }
  if (type == "boolean") {
    return value.is_bool();
  }
  if (type == "null") {
    return value.is_null();
  }
  if (type == "number") {
    return value.is_number();
  }
  if (type == "integer") {
    return value.is_int64() || value.is_uint64();
  }
  if (type == "array") {
    return value.is_array();
  }
  return type == "object" && value.is_object();
}

void check_object(const json::object& schema, const json::object& value, const std::string& where,
                  std::vector<std::string>& out) {
  const json::object* properties = nullptr;
  if (const auto* found = schema.if_contains("properties")) {
    properties = &found->as_object();
  }
  const json::value* others = schema.if_contains("additionalProperties");
  for (const auto& entry : value) {
    const std::string inner = where + "." + std::string{entry.key()};
    const json::value* known =
        properties != nullptr ? properties->if_contains(entry.key()) : nullptr;
    std::vector<std::string> more;
    if (known != nullptr) {
      more = violations(*known, entry.value(), inner);
    } else if (others != nullptr && others->is_object()) {
      more = violations(*others, entry.value(), inner);
    } else if (others != nullptr && others->is_bool() && !others->as_bool()) {
      more.push_back(inner + " is not allowed");
    }
    out.insert(out.end(), more.begin(), more.end());
  }
  if (const auto* required = schema.if_contains("required")) {
    for (const json::value& name : required->as_array()) {
      if (!value.contains(name.as_string())) {
        out.push_back(where + " lacks " + std::string{name.as_string()});
      }
    }
  }
}

void check_keyword(std::string_view name, const json::value& rule, const json::value& value,
                   const std::string& where, std::vector<std::string>& out) {
  const auto add = [&](const std::string& what) {
    out.push_back(where + ": " + what + ", got " + json::serialize(value));
  };
  if (name == "type") {
    bool good = false;
    if (rule.is_string()) {
      good = has_type(std::string{rule.as_string()}, value);
    } else {
      for (const json::value& type : rule.as_array()) {
        good = good || has_type(std::string{type.as_string()}, value);
      }
    }
    if (!good) {
      add("type must be " + json::serialize(rule));
    }
  } else if (name == "enum") {
    const auto& words = rule.as_array();
    if (std::find(words.begin(), words.end(), value) == words.end()) {
      add("must be one of " + json::serialize(rule));
    }
  } else if (name == "minimum" && value.is_number()) {
    if (value.to_number<double>() < rule.to_number<double>()) {
      add("too small");
    }
  } else if (name == "maximum" && value.is_number()) {
    if (value.to_number<double>() > rule.to_number<double>()) {
      add("too large");
    }
  } else if (name == "maxLength" && value.is_string()) {
    if (value.as_string().size() > rule.to_number<std::size_t>()) {
      add("too long");
    }
  } else if (name == "minItems" && value.is_array()) {
    if (value.as_array().size() < rule.to_number<std::size_t>()) {
      add("too few items");
    }
  } else if (name == "maxProperties" && value.is_object()) {
    if (value.as_object().size() > rule.to_number<std::size_t>()) {
      add("too many properties");
    }
  } else if (name == "items" && value.is_array()) {
    std::size_t i = 0;
    for (const json::value& item : value.as_array()) {
      const auto more = violations(rule, item, where + "[" + std::to_string(i++) + "]");
      out.insert(out.end(), more.begin(), more.end());
    }
  } else if (name == "allOf") {
    for (const json::value& part : rule.as_array()) {
      const auto more = violations(part, value, where);
      out.insert(out.end(), more.begin(), more.end());
    }
  }
}

}  // namespace

const json::object& openapi() {
  static const json::value document = json::parse(server::api::openapi_json());
  return document.as_object();
}

const json::value& resolve(const json::value& schema) {
  const json::value* at = &schema;
  while (at->is_object() && at->as_object().contains("$ref")) {
    const std::string ref{at->as_object().at("$ref").as_string()};
    boost::system::error_code ec;
    static const json::value document(openapi());  // braces would make an array
    const json::value* target = document.find_pointer(ref.substr(1), ec);
    if (target == nullptr) {
      static const json::value nothing;
      return nothing;
    }
    at = target;
  }
  return *at;
}

std::vector<std::string> violations(const json::value& schema, const json::value& value,
                                    const std::string& where) {
  static const std::set<std::string> known{
      "type",          "enum",  "minimum", "maximum",    "maxLength", "minItems",
      "maxProperties", "items", "allOf",   "properties", "required",  "additionalProperties"};
  std::vector<std::string> out;
  const json::value& found = resolve(schema);
  if (!found.is_object()) {
    return {where + ": no such schema: " + json::serialize(schema)};
  }
  for (const auto& entry : found.as_object()) {
    const std::string name{entry.key()};
    if (known.contains(name)) {
      check_keyword(name, entry.value(), value, where, out);
    } else if (!kIgnored.contains(name)) {
      out.push_back(where + ": the checker does not know the keyword " + name);
    }
  }
  if (value.is_object()) {
    check_object(found.as_object(), value.as_object(), where, out);
  }
  return out;
}

}  // namespace talon::test
