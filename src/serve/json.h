// SPDX-License-Identifier: Apache-2.0
// A strict JSON pull reader for hostile text: bounded nesting, no tree, NaN and Infinity allowed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::serve {

// Reads a text value by value; each call takes the next value or throws a `parse` error that names
// the byte. Every value must be taken, if only by skip(). The text must outlive the reader.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text, std::string where = "JSON")
      : text_(text), where_(std::move(where)) {}

  // member(key) is called for each member and takes its value; a key that comes twice is an error.
  template <class F>
  void object(F&& member) {
    std::string keys;  // each key and a NUL, to find repeats
    list('{', '}', [&] {
      std::string key;
      string(key);
      note_key(keys, key);
      expect(':');
      member(std::string_view(key));
    });
  }
  // element() is called before each element and takes it.
  template <class F>
  void array(F&& element) {
    list('[', ']', element);
  }
  void string(std::string& out);  // appends the unescaped text, in UTF-8
  bool boolean();
  std::string_view number();  // the token: a JSON number, NaN, Infinity or -Infinity
  uint64_t unsigned_integer();
  int64_t integer();
  std::string_view skip();  // any value, checked; gives its text
  char peek();              // the next value's first character, or NUL at the end
  void end();               // only white space may follow
  [[noreturn]] void error(std::string_view what) const;

 private:
  static constexpr int kMaxDepth = 64;
  template <class F>
  void list(char open, char close, F&& item) {
    expect(open);
    if (++depth_ > kMaxDepth) error("nested too deeply");
    if (peek() != close) {
      do item();
      while (take(','));
    }
    expect(close);
    --depth_;
  }
  void space();
  bool take(char c);
  void expect(char c);
  void note_key(std::string& keys, std::string_view key) const;
  void escape(std::string& out);
  uint32_t hex4();

  std::string_view text_;
  std::string where_;  // what errors call the text
  size_t at_ = 0;
  int depth_ = 0;
};

// Appends `text` as a JSON string; `text` is UTF-8.
void append_json_string(std::string& out, std::string_view text);

}  // namespace cairn::serve
