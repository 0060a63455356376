// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/file.h"

namespace fs = std::filesystem;

namespace cairn::data {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxListBytes = size_t(1) << 30;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c + 32);  // no locale
  return out;
}

// Formats that we cannot read yet are listed too: their records fail with the reason instead of vanishing.
bool has_picture_suffix(const std::string& name) {
  static const std::set<std::string, std::less<>> kSuffixes{
      ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff",
      ".ppm", ".pgm", ".jp2", ".heic", ".heif", ".avif"};
  const size_t dot = name.rfind('.');
  return dot != name.npos && kSuffixes.contains(lower(name.substr(dot)));
}

// Split names as people spell them → the part; "" for any other name.
std::string part_of(std::string_view name) {
  const std::string n = lower(name);
  if (n == "train" || n == "training") return "train";
  if (n == "val" || n == "valid" || n == "validation") return "val";
  return n == "test" || n == "testing" ? "test" : "";
}

struct Entry {
  std::string name;
  enum Kind { folder, file, broken, other } kind;
  std::pair<uint64_t, uint64_t> identity;  // device and inode, behind links
};

// Entries of a folder in byte order, links followed.
std::vector<Entry> entries(const std::string& folder, std::error_code& error) {
  std::vector<Entry> out;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    Entry e{it->path().filename().native(), Entry::broken, {}};
    struct stat info;
    if (::stat(it->path().c_str(), &info) == 0) {
      e.kind = S_ISDIR(info.st_mode) ? Entry::folder : S_ISREG(info.st_mode) ? Entry::file : Entry::other;
      e.identity = {uint64_t(info.st_dev), uint64_t(info.st_ino)};
    }
    out.push_back(std::move(e));
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return out;
}

std::string join(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

// Class names go into recipes, reports and the exported model, which hold text.
void check_class_names(const std::string& where, const std::vector<std::string>& classes) {
  for (const std::string& c : classes)
    if (printable(c) != c)
      fail(ErrorCode::invalid_argument,
           fmt::format("data: {}: the class name \"{}\" is not UTF-8 text of one line", where, printable(c)), "Rename the class");
}

class FolderLister {
 public:
  FolderLister(std::string root, const ListOptions& options) : root_(std::move(root)), options_(options) {}

  Listing list() {
    std::error_code error;
    const auto top = entries(root_, error);
    if (error) fail(ErrorCode::io, fmt::format("data: cannot list {}: {}", printable(root_), error.message()));
    std::set<std::string> parts, others;
    for (const Entry& e : top) {
      if (e.kind != Entry::folder || e.name[0] == '.') continue;
      if (auto part = part_of(e.name); part.empty()) others.insert(e.name);
      else if (!parts.insert(part).second)
        fail(ErrorCode::invalid_argument,
             fmt::format("data: {} has two sub-folders for the part \"{}\"", printable(root_), part));
    }
    // Split only when nothing else is there: a class may well be called "test" or "train".
    const bool split = others.empty() && parts.contains("train");
    if (split) {
      for (const Entry& e : top) {
        if (e.kind == Entry::folder && e.name[0] != '.')
          list_classes(e.name, entries_or_report(e.name), part_of(e.name));
        else
          leave(e, e.name);
      }
    } else {
      list_classes("", top, "");
    }
    finish(split);
    return std::move(out_);
  }

 private:
  void list_classes(const std::string& prefix, const std::vector<Entry>& folders, const std::string& part) {
    for (const Entry& e : folders) {
      const std::string key = join(prefix, e.name);
      if (e.kind != Entry::folder || e.name[0] == '.') {
        if (e.name == kListName && prefix.empty()) continue;  // the same pictures as a list
        if (e.kind == Entry::file && e.name[0] != '.' && has_picture_suffix(e.name)) ++loose_;
        leave(e, key);
        continue;
      }
      const size_t before = out_.records.size();
      std::set<std::pair<uint64_t, uint64_t>> visited{e.identity};
      walk(key, e.name, part, visited, 0);
      // Which folders are empty matters for training; a part may lack a class.
      if (out_.records.size() == before && (part.empty() || part == "train")) empty_.push_back(key);
      names_.insert(e.name);
      if (part == "train" || part.empty()) train_names_.insert(e.name);
    }
  }

  void walk(const std::string& key, const std::string& label, const std::string& part,
            std::set<std::pair<uint64_t, uint64_t>>& visited, int depth) {
    for (const Entry& e : entries_or_report(key)) {
      const std::string inner = join(key, e.name);
      if (e.name[0] == '.') {
        leave(e, inner);
      } else if (e.kind == Entry::folder) {
        if (depth >= kMaxDepth) skip(inner, "too_deep", fmt::format("more than {} folders deep", kMaxDepth));
        else if (!visited.insert(e.identity).second) skip(inner, "link", "a link to a folder that was listed already");
        else walk(inner, label, part, visited, depth + 1);
      } else if (e.kind == Entry::file && has_picture_suffix(e.name)) {
        out_.records.push_back({join(root_, inner), inner, 0, "", part, 0});
        labels_.push_back(label);
      } else {
        leave(e, inner);
      }
    }
  }

  std::vector<Entry> entries_or_report(const std::string& key) {
    std::error_code error;
    auto out = entries(join(root_, key), error);
    if (error) out_.report.add({Bucket::failed, key, 0, "unreadable", error.message(), "left out"});
    return out;
  }

  void skip(const std::string& key, std::string kind, std::string detail) {
    out_.report.add({Bucket::skipped, key, 0, std::move(kind), std::move(detail), "left out"});
  }
  // Says why something is no record.
  void leave(const Entry& e, const std::string& key) {
    if (e.name[0] == '.') return skip(key, "hidden", "hidden entries are ignored");
    if (e.kind == Entry::broken)
      return out_.report.add({Bucket::failed, key, 0, "broken_link", "the link leads nowhere", "left out"});
    if (e.kind == Entry::other) return skip(key, "not_a_file", "neither a file nor a folder");
    if (has_picture_suffix(e.name)) return skip(key, "no_class", "a picture outside the class folders");
    skip(key, "not_a_picture_name", "no suffix of a picture");
  }

  void finish(bool split) {
    const std::string where = printable(root_);
    if (names_.empty())
      fail(ErrorCode::invalid_argument,
           loose_ ? fmt::format("data: {} holds {} pictures but no class folders", where, loose_)
                  : fmt::format("data: {} holds no class folders", where),
           "Put the pictures of each class into a sub-folder named after the class");
    if (out_.records.empty())
      fail(ErrorCode::invalid_argument,
           fmt::format("data: no pictures in the class folders of {}: {}", where, out_.report.summary()),
           "Pictures end in .jpg, .jpeg or .png, in any case");
    out_.classes = options_.classes;
    if (out_.classes.empty()) out_.classes.assign(train_names_.begin(), train_names_.end());
    check_class_names(where, out_.classes);
    std::unordered_map<std::string, int64_t> index;
    for (size_t i = 0; i < out_.classes.size(); ++i) index[out_.classes[i]] = int64_t(i);
    for (const std::string& name : names_)
      if (!index.contains(name))
        fail(ErrorCode::invalid_argument,
             fmt::format("data: {} has a class folder \"{}\", expected one of: {}", where, printable(name),
                         printable(fmt::format("{}", fmt::join(out_.classes, ", ")))),
             options_.classes.empty() && split ? "Every class of val/ and test/ must be in train/ too"
                                               : "Give the data that the model was trained for");
    if (options_.classes.empty() && !empty_.empty() && !options_.allow_empty)
      fail(ErrorCode::invalid_argument,
           fmt::format("data: the class folder {} holds no pictures", printable(join(root_, empty_[0]))),
           "Remove it, fill it, or allow empty classes");
    for (const std::string& key : empty_)
      out_.report.note({Bucket::used, key, 0, "empty_class", "the class folder holds no pictures", "kept as a class"});
    for (size_t i = 0; i < labels_.size(); ++i) out_.records[i].label = index.at(labels_[i]);
    // Order by key, so that "a-b/x" and "a/x" do not depend on how folders were walked.
    std::sort(out_.records.begin(), out_.records.end(), [](auto& a, auto& b) { return a.key < b.key; });
  }

  std::string root_;
  const ListOptions& options_;
  Listing out_;
  std::vector<std::string> labels_;  // class name of each record, until the classes are known
  std::vector<std::string> empty_;
  std::set<std::string> names_, train_names_;
  int64_t loose_ = 0;
};

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return v;
}

// Labels as class names: by value when all are whole numbers, else by bytes.
std::vector<std::string> sorted_classes(const std::set<std::string>& names) {
  std::vector<std::string> out(names.begin(), names.end());
  const bool numbers = std::all_of(out.begin(), out.end(), [](auto& n) { return whole_number(n).has_value(); });
  if (numbers)
    std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return *whole_number(a) < *whole_number(b); });
  return out;
}

struct Columns {
  size_t path = 0, label = 1, count = 0;
  std::optional<size_t> part;
  bool header = false;
};

Columns find_columns(const CsvRow& first) {
  Columns out;
  out.count = first.fields.size();
  std::optional<size_t> path, label, part;
  for (size_t i = 0; i < first.fields.size(); ++i) {
    const std::string name = lower(first.fields[i]);
    if (!path && (name == "path" || name == "file" || name == "filename" || name == "image")) path = i;
    if (!label && (name == "label" || name == "class")) label = i;
    if (!part && (name == "split" || name == "part")) part = i;
  }
  if (path && label) return {*path, *label, out.count, part, true};
  return out;
}

}  // namespace

Listing list_folder(const std::string& folder, const ListOptions& options) {
  std::error_code error;
  if (!fs::exists(folder, error)) fail(ErrorCode::not_found, fmt::format("data: there is no folder {}", printable(folder)));
  if (!fs::is_directory(folder, error))
    fail(ErrorCode::invalid_argument, fmt::format("data: {} is not a folder", printable(folder)));
  return FolderLister(folder, options).list();
}

std::vector<CsvRow> parse_csv(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<CsvRow> rows;
  int64_t line = 1;
  for (size_t i = 0; i < text.size();) {
    CsvRow row{line, {}};
    for (bool more = true; more;) {
      std::string field;
      if (i < text.size() && text[i] == '"') {
        const int64_t opened = line;
        for (++i;; ++i) {
          if (i >= text.size())
            fail(ErrorCode::parse, fmt::format("data: line {}: a quote is opened and never closed", opened));
          if (text[i] == '"' && (i + 1 >= text.size() || text[i + 1] != '"')) break;
          if (text[i] == '"') ++i;
          if (text[i] == '\n') ++line;
          field += text[i];
        }
        ++i;
        if (i < text.size() && text[i] != ',' && text[i] != '\n' && text.substr(i, 2) != "\r\n")
          fail(ErrorCode::parse, fmt::format("data: line {}: text behind a closing quote", line));
      } else {
        const size_t end = std::min(text.find_first_of(",\n", i), text.size());
        field = text.substr(i, end - i);
        if (field.ends_with('\r') && (end == text.size() || text[end] == '\n')) field.pop_back();
        i = end;
      }
      row.fields.push_back(std::move(field));
      if (text.substr(i, 2) == "\r\n") ++i;
      more = i < text.size() && text[i] == ',';
      ++i;
    }
    ++line;
    if (row.fields.size() > 1 || !row.fields[0].empty()) rows.push_back(std::move(row));
  }
  return rows;
}

Listing list_csv(const std::string& file, const ListOptions& options) {
  std::vector<CsvRow> rows;
  try {
    rows = parse_csv(read_file(file, kMaxListBytes));
  } catch (Error& e) {
    e.add_frame(printable(file));
    throw;
  }
  const std::string where = printable(file);
  if (rows.empty()) fail(ErrorCode::invalid_argument, fmt::format("data: {} holds no rows", where));
  const Columns columns = find_columns(rows[0]);
  if (columns.count < 2)
    fail(ErrorCode::parse, fmt::format("data: {}:{}: got {} column, expected path,label[,strata…]", where,
                                       rows[0].line, columns.count),
         rows[0].fields[0].find_first_of(";\t ") != std::string::npos ? "Columns are separated by commas" : "");
  const std::string folder = fs::path(file).parent_path().native();
  const auto on_disk = [&](const std::string& path) { return path[0] == '/' ? path : join(folder, path); };
  // A header by other names would be a record, and a class, of its own.
  if (const std::string& path = rows[0].fields[0]; !columns.header && !has_picture_suffix(path)) {
    std::error_code error;
    if (path.empty() || !fs::exists(on_disk(path), error))
      fail(ErrorCode::parse,
           fmt::format("data: {}:{}: \"{}\" is neither a picture nor a header that is known", where, rows[0].line,
                       printable(fmt::format("{}", fmt::join(rows[0].fields, ",")))),
           "Name the columns path and label (or file, filename, image; class), or leave the header out");
  }
  Listing out;
  std::vector<std::string> labels;
  std::set<std::string> names;
  std::unordered_map<std::string, size_t> seen;
  for (size_t i = columns.header ? 1 : 0; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    const auto drop = [&](Bucket bucket, std::string kind, std::string detail) {
      out.report.add({bucket, row.fields[std::min(columns.path, row.fields.size() - 1)], row.line,
                      std::move(kind), std::move(detail), "left out"});
    };
    if (row.fields.size() != columns.count) {
      drop(Bucket::failed, "columns", fmt::format("got {} columns, expected {}", row.fields.size(), columns.count));
      continue;
    }
    const std::string &path = row.fields[columns.path], &label = row.fields[columns.label];
    if (path.empty() || path.find('\0') != path.npos || label.empty()) {
      drop(Bucket::failed, "columns", label.empty() ? "the label is empty" : "the path is empty or holds a zero byte");
      continue;
    }
    Record record{on_disk(path), path, 0, "", "", row.line};
    if (columns.part) {
      record.part = part_of(row.fields[*columns.part]);
      if (record.part.empty()) {
        drop(Bucket::failed, "split", fmt::format("got split \"{}\", expected train, val or test", row.fields[*columns.part]));
        continue;
      }
    }
    if (auto [at, fresh] = seen.try_emplace(fs::path(path).lexically_normal().native(), labels.size()); !fresh) {
      const size_t first = at->second;
      if (labels[first] == label) drop(Bucket::skipped, "duplicate", fmt::format("already in line {}", out.records[first].line));
      else drop(Bucket::failed, "conflict", fmt::format("line {} gives the label \"{}\", this one \"{}\"",
                                                       out.records[first].line, labels[first], label));
      continue;
    }
    for (size_t c = 0; c < columns.count; ++c)
      if (c != columns.path && c != columns.label && c != columns.part)
        record.stratum += (record.stratum.empty() ? "" : "|") + row.fields[c];
    names.insert(label);
    labels.push_back(label);
    out.records.push_back(std::move(record));
  }
  if (out.records.empty())
    fail(ErrorCode::invalid_argument, fmt::format("data: {} names no usable record: {}", where, out.report.summary()));
  out.classes = options.classes.empty() ? sorted_classes(names) : options.classes;
  check_class_names(where, out.classes);
  std::unordered_map<std::string, int64_t> index;
  for (size_t i = 0; i < out.classes.size(); ++i) index[out.classes[i]] = int64_t(i);
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto at = index.find(labels[i]);
    if (at == index.end())
      fail(ErrorCode::invalid_argument,
           fmt::format("data: {}:{}: label \"{}\", expected one of: {}", where, out.records[i].line, printable(labels[i]),
                       printable(fmt::format("{}", fmt::join(out.classes, ", ")))),
           "Give the data that the model was trained for");
    out.records[i].label = at->second;
  }
  return out;
}

}  // namespace cairn::data
