// SPDX-License-Identifier: Apache-2.0
// The JSON pull reader: one pass over the text, nothing allocated but what the caller asks for.
#include "serve/json.h"

#include <cairn/error.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>

namespace cairn::serve {
namespace {

template <class T>
bool parse_integer(std::string_view token, T& value) {
  const auto [end, ec] = std::from_chars(token.data(), token.data() + token.size(), value);
  return ec == std::errc() && end == token.data() + token.size();
}

bool digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += {char(0xC0 | code >> 6), char(0x80 | (code & 63))};
  } else if (code < 0x10000) {
    out += {char(0xE0 | code >> 12), char(0x80 | (code >> 6 & 63)), char(0x80 | (code & 63))};
  } else {
    out += {char(0xF0 | code >> 18), char(0x80 | (code >> 12 & 63)), char(0x80 | (code >> 6 & 63)),
            char(0x80 | (code & 63))};
  }
}

}  // namespace

void JsonReader::error(std::string_view what) const {
  fail(ErrorCode::parse, fmt::format("request: {}: {} at byte {}", where_, what, at_));
}

void JsonReader::space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
}

char JsonReader::peek() {
  space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::take(char c) {
  if (peek() != c || at_ == text_.size()) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (!take(c)) error(fmt::format("expected '{}'", c));
}

void JsonReader::end() {
  space();
  if (at_ != text_.size()) error("more text after the value");
}

void JsonReader::note_key(std::string& keys, std::string_view key) const {
  // Requests have a handful of keys; the limit keeps the search linear in the text.
  if (key.size() > 256 || keys.size() > 4096) error("too many or too long keys in an object");
  std::string entry(1, '\0');
  entry.append(key).push_back('\0');
  if (keys.find(entry) != std::string::npos) error(fmt::format("'{}' comes twice", key));
  keys.append(keys.empty() ? entry : entry.substr(1));
}

uint32_t JsonReader::hex4() {
  uint32_t code = 0;
  if (text_.size() - at_ < 4) error("cut-off \\u escape");
  const auto [end, ec] = std::from_chars(&text_[at_], &text_[at_] + 4, code, 16);
  if (ec != std::errc() || end != &text_[at_] + 4) error("bad \\u escape");
  at_ += 4;
  return code;
}

void JsonReader::escape(std::string& out) {
  if (at_ == text_.size()) error("text ends inside a string");
  switch (text_[at_++]) {
    case '"':
      out += '"';
      return;
    case '\\':
      out += '\\';
      return;
    case '/':
      out += '/';
      return;
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'u':
      break;
    default:
      error("unknown escape");
  }
  uint32_t code = hex4();
  if (code >= 0xD800 && code < 0xE000) {  // a pair of surrogates makes one character
    if (code >= 0xDC00 || text_.substr(at_, 2) != "\\u") error("lone surrogate");
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xDC00 || low >= 0xE000) error("lone surrogate");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, code);
}

void JsonReader::string(std::string& out) {
  if (!take('"')) error("expected a string");
  while (true) {
    size_t end = at_;
    while (end < text_.size() && text_[end] != '"' && text_[end] != '\\' &&
           uint8_t(text_[end]) >= 32)
      ++end;
    out.append(text_, at_, end - at_);
    at_ = end;
    if (at_ == text_.size()) error("text ends inside a string");
    if (uint8_t(text_[at_]) < 32) error("control character in a string");
    if (text_[at_++] == '"') return;
    escape(out);
  }
}

bool JsonReader::boolean() {
  space();
  for (const bool value : {true, false}) {
    const std::string_view token = value ? "true" : "false";
    if (text_.substr(at_, token.size()) == token) {
      at_ += token.size();
      return value;
    }
  }
  error("expected true or false");
}

std::string_view JsonReader::number() {
  space();
  const size_t begin = at_;
  for (const std::string_view token : {"NaN", "Infinity", "-Infinity"})
    if (text_.substr(at_, token.size()) == token) {
      at_ += token.size();
      return token;
    }
  const auto next = [&] { return at_ < text_.size() ? text_[at_] : '\0'; };
  const auto digits = [&] {
    if (!digit(next())) error("expected a number");
    while (digit(next())) ++at_;
  };
  if (next() == '-') ++at_;
  if (next() == '0')
    ++at_;
  else
    digits();
  if (next() == '.') ++at_, digits();
  if (next() == 'e' || next() == 'E') {
    ++at_;
    if (next() == '+' || next() == '-') ++at_;
    digits();
  }
  return text_.substr(begin, at_ - begin);
}

uint64_t JsonReader::unsigned_integer() {
  uint64_t value = 0;
  if (!parse_integer(number(), value)) error("expected an integer of at least 0");
  return value;
}

int64_t JsonReader::integer() {
  int64_t value = 0;
  if (!parse_integer(number(), value)) error("expected an integer");
  return value;
}

std::string_view JsonReader::skip() {
  space();
  const size_t begin = at_;
  std::string ignored;
  switch (peek()) {
    case '{':
      list('{', '}', [&] {
        ignored.clear();
        string(ignored);
        expect(':');
        skip();
      });
      break;
    case '[':
      array([&] { skip(); });
      break;
    case '"':
      string(ignored);
      break;
    case 't':
    case 'f':
      boolean();
      break;
    case 'n':
      if (text_.substr(at_, 4) != "null") error("expected a value");
      at_ += 4;
      break;
    default:
      number();
  }
  return text_.substr(begin, at_ - begin);
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (uint8_t(c) < 32 || c == 127)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", unsigned(c));
    else
      out += c;
  }
  out += '"';
}

}  // namespace cairn::serve
