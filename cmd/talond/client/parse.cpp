#include <algorithm>

#include "client/verbs.h"

namespace talon::client {

namespace {

const Option* find_option(const Verb& verb, std::string_view name, char letter) {
  const auto found = std::ranges::find_if(verb.options, [&](const Option& option) {
    return letter != 0 ? option.letter == letter : option.name == name;
  });
  return found == verb.options.end() ? nullptr : &*found;
}

std::unexpected<Error> wrong(const std::string& message) {
  return fail(Code::invalid_request, message);
}

class Parser {
 public:
  Parser(const Verb& verb, std::span<const std::string> words) : verb_(verb), words_(words) {
    out_.verb = &verb;
  }

  Result<Words> run() {
    while (at_ < words_.size() && !out_.help) {
      const std::string& word = words_[at_++];
      if (word == "--") {
        rest_from(at_);
      } else if (word.starts_with("--")) {
        TALON_CHECK(long_option(word.substr(2)));
      } else if (word.starts_with('-') && word.size() > 1) {
        TALON_CHECK(letters(word));
      } else if (verb_.command && out_.arguments.size() == verb_.takes.size()) {
        rest_from(at_ - 1);
      } else {
        out_.arguments.push_back(word);
      }
    }
    if (!out_.help) {
      TALON_CHECK(check());
    }
    return std::move(out_);
  }

 private:
  void rest_from(std::size_t first) {
    auto& rest = verb_.command ? out_.command : out_.arguments;
    rest.insert(rest.end(), words_.begin() + static_cast<std::ptrdiff_t>(first), words_.end());
    at_ = words_.size();
  }

  Result<> store(const Option* option, const std::string& shown, const std::string* value) {
    if (option == nullptr) {
      return wrong(shown + " is not an option of " + std::string{verb_.name});
    }
    auto& values = out_.options[std::string{option->name}];
    if (option->value.empty()) {
      return value == nullptr ? Result<>{} : wrong(shown + " takes no value");
    }
    if (value != nullptr) {
      values.push_back(*value);
    } else if (at_ < words_.size()) {
      values.push_back(words_[at_++]);
    } else {
      return wrong(shown + " needs a value: " + std::string{option->value});
    }
    return {};
  }

  Result<> long_option(const std::string& text) {
    const auto equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (text == "help") {
      out_.help = true;
      return {};
    }
    const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
    return store(find_option(verb_, name, 0), "--" + name,
                 equals == std::string::npos ? nullptr : &value);
  }

  Result<> letters(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      if (word[i] == 'h') {
        out_.help = true;
        return {};
      }
      const Option* option = find_option(verb_, {}, word[i]);
      const std::string shown{'-', word[i]};
      if (option != nullptr && !option->value.empty() && i + 1 < word.size()) {
        const std::string value = word.substr(i + 1);
        return store(option, shown, &value);
      }
      TALON_CHECK(store(option, shown, nullptr));
    }
    return {};
  }

  Result<> check() const {
    const std::string usage = std::string{verb_.name} + " " + std::string{verb_.arguments};
    if (out_.arguments.size() < verb_.at_least) {
      return wrong("something is missing; write " + usage);
    }
    if (out_.arguments.size() > verb_.takes.size() && !verb_.many) {
      return wrong("\"" + out_.arguments.back() + "\" is too much; write " + usage);
    }
    if (std::ranges::any_of(out_.arguments, &std::string::empty)) {
      return wrong("an empty word where a name or an id belongs; write " + usage);
    }
    const std::string format = out_.value("output");
    if (out_.has("output") && format != "table" && format != "json" && format != "id") {
      return wrong("--output is table, json or id, not \"" + format + "\"");
    }
    return {};
  }

  const Verb& verb_;
  std::span<const std::string> words_;
  std::size_t at_ = 0;
  Words out_;
};

}  // namespace

std::string Words::value(std::string_view option) const {
  const auto& all = values(option);
  return all.empty() ? "" : all.back();
}

const std::vector<std::string>& Words::values(std::string_view option) const {
  static const std::vector<std::string> none;
  const auto found = options.find(option);
  return found == options.end() ? none : found->second;
}

const Verb* find_verb(std::string_view name) {
  const auto found = std::ranges::find(verbs(), name, &Verb::name);
  return found == verbs().end() ? nullptr : &*found;
}

Result<Words> parse(const Verb& verb, std::span<const std::string> words) {
  return Parser(verb, words).run();
}

}  // namespace talon::client
