// SPDX-License-Identifier: Apache-2.0
// Data: labelled pictures on disk → batches of tensors, the same for a seed whatever the threads.
//
//   auto [train, test] = data::image_folder("pictures").split({.train = 0.75, .seed = 1});
//   auto batches = train.map(data::augment(224)).batch(32, {.shuffle = true, .seed = 1});
//   while (auto batch = batches.next()) step(batch->x, batch->y);   // one epoch
//
// Users' files are only ever read. Every item found ends in exactly one counted bucket of a Report.
// All classes here but Loader are values: cheap enough to copy, safe to read from several threads.
#pragma once
#include <cairn/tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::data {

// --- the data report ---

// Where an item ended: as it stands; mended on reading (the file is not touched); left out on
// purpose; wanted, but not usable.
enum class Bucket : uint8_t { used, repaired, skipped, failed };
CAIRN_API std::string_view name(Bucket bucket);

// One thing worth telling about one item. `kind` is a stable word for programs ("truncated"), `detail`
// is for people, `action` says what Cairn did about it.
struct Finding {
  Bucket bucket = Bucket::used;
  std::string file;  // as listed; json() and summary() escape odd bytes
  int64_t line = 0;  // of a CSV list, from 1; 0: none
  std::string kind, detail, action;
};

// Counts by bucket and kind, which add up to the number of items found, and the findings themselves
// (at most kMaxListed of a kind are kept; the counts stay exact).
class CAIRN_API Report {
 public:
  static constexpr int64_t kMaxListed = 1000;
  void add_used(int64_t count = 1) { counts_[size_t(Bucket::used)] += count; }
  void add(Finding finding);    // counts one item in its bucket
  void note(Finding finding);   // lists something about an item that is counted elsewhere
  void merge(const Report& other);
  int64_t count(Bucket bucket) const { return counts_[size_t(bucket)]; }
  int64_t found() const;        // the sum of all buckets
  const std::map<std::string, int64_t>& kinds() const { return kinds_; }
  const std::vector<Finding>& findings() const { return findings_; }
  std::string json() const;     // {"found", "used", "repaired", "skipped", "failed", "kinds", "records", "unlisted"}
  std::string summary() const;  // one line, then one a kind: "12 found: 9 used, 1 repaired, …"

 private:
  void list(Finding finding);
  std::array<int64_t, 4> counts_{};
  std::map<std::string, int64_t> kinds_;
  std::vector<Finding> findings_;
};

// --- from a picture to numbers ---

struct Size {
  int width = 0, height = 0;
  bool operator==(const Size&) const = default;
};

// How pictures become numbers: colour, then steps in order, then f32 planes (C, H, W). Immutable. Its
// text is stored with the run and in the exported model, so that serving does what training did.
//
// A recipe is steps separated by commas; arguments by colons; one value a channel by slashes:
//   rgb | grey                   the channels of the result; first step, rgb when absent. Grey is made
//                                of RGB by (19595 R + 38470 G + 7471 B + 32768) >> 16
//   resize=S[:bicubic]           to S = "128" or "640x480" (width x height), stretched
//   resize_short=N[:bicubic]     so that the shorter side is N, keeping the proportions
//   center_crop=S
//   random_resized_crop=S[:A-B[:R-Q[:bicubic]]]
//                                a part of A…B of the area and of R…Q width/height (0.08-1, 0.75-1.3333)
//   hflip[=P] vflip[=P]          with probability P (0.5)
//   rot90                        by 0, 90, 180 or 270 degrees, each as likely
//   affine=D[:T[:A-B[:H]]]       turned by up to ±D degrees, moved by up to ±T of the size, scaled
//                                A…B, sheared by up to ±H degrees; the border is repeated outside
//   jitter=B:C:S                 brightness, contrast, saturation by factors 1 ± B, C, S, in that order
//   normalize=M:D                (x/255 - M) / D; last step; without it x/255
// Resizing is antialiased, half-pixel centred, 8 bits in and out: the same numbers as Pillow's.
class CAIRN_API Transform {
 public:
  Transform() : Transform("rgb") {}
  Transform(std::string_view recipe);  // throws parse, naming the step
  Transform(const std::string& recipe) : Transform(std::string_view(recipe)) {}
  Transform(const char* recipe) : Transform(std::string_view(recipe)) {}
  const std::string& recipe() const;  // canonical; Transform(recipe()) == *this
  // The same without chance, for evaluation and serving: a random crop becomes a resize of the whole
  // picture, other random steps go.
  Transform eval() const;
  bool random() const;                     // whether any step draws lots
  int channels() const;                    // 1 or 3
  std::optional<Size> output_size() const; // when it does not depend on the picture
  Size output_size(Size input) const;
  bool operator==(const Transform& other) const { return recipe() == other.recipe(); }

  struct Plan;  // data/transform.h
  const Plan& plan() const { return *plan_; }

 private:
  std::shared_ptr<const Plan> plan_;
};

// The usual ones, for square RGB input normalised by (x/255 - 0.5) / 0.25.
CAIRN_API Transform resize(int size);
CAIRN_API Transform augment(int size);  // random crop, flips, a little colour; augment(n).eval() == resize(n)

// Refusals that protect memory: a picture is measured by its header, before anything is allocated.
struct Limits {
  int64_t max_pixels = 200'000'000;
  int64_t max_memory = int64_t(2) << 30;      // bytes that one decode may hold
  int64_t max_file = int64_t(1) << 30;        // bytes of one file
};

// One picture, from a file or from the bytes of one, as f32 (1, C, H, W); random steps are left out
// (transform.eval()). throws parse or unsupported with the reason when it is not a whole JPEG or PNG.
CAIRN_API Tensor load_picture(const std::string& path, const Transform& transform, const Limits& limits = {});
CAIRN_API Tensor decode_picture(std::string_view bytes, const Transform& transform, const Limits& limits = {});

// --- batches ---

// One labelled picture on disk.
struct Record {
  std::string path;     // to open it
  std::string key;      // relative to the folder or list: names it in reports and in the split
  int64_t label = 0;    // index into the class names
  std::string stratum;  // further columns of a list, e.g. "mono"; "" when none
  std::string part;     // "train", "val", "test" when the data came split; else ""
  int64_t line = 0;     // of the list, from 1; 0: none
};

struct Batch {
  Tensor x;                      // f32 (N, C, H, W)
  Tensor y;                      // i64 (N)
  std::vector<int64_t> records;  // indices into the data set, in row order
  int64_t epoch = 0, index = 0;
};

// Which batch comes next; enough to go on in the middle of an epoch.
struct Position {
  int64_t epoch = 0, batch = 0;
  bool operator==(const Position&) const = default;
};

struct BatchOptions {
  bool shuffle = false;             // a new order each epoch, from (seed, epoch)
  uint64_t seed = 0;                // also of random transforms: (seed, epoch, record index)
  bool drop_last = false;           // leave out a last batch that is not full
  int workers = -1;                 // loading threads; 0: in the caller's; -1: chosen. Never beyond the cores
  size_t queue_bytes = 256u << 20;  // finished batches waiting; at least one batch is always allowed
  size_t cache_bytes = size_t(-1);  // decoded pictures kept for later epochs; -1: 1 GiB or 1/8 of the memory
  bool fail_on_bad_picture = false; // next() throws; else the row is left out and counted in report()
};

// Batches in order, made ahead of time by threads of its own. Order and bits depend on the data, the
// options' seed and the epoch, never on the workers. A picture that cannot be used leaves its batch
// shorter and is counted; batches never borrow from each other. One thread at a time may use a Loader.
class CAIRN_API Loader {
 public:
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();
  // The next batch; nothing at the end of each epoch, after which the next epoch begins. What a worker
  // throws comes out here with the record's name; going on then continues behind that batch.
  std::optional<Batch> next();
  Position position() const;       // of the batch that next() will return
  void seek(Position position);    // e.g. a saved position; throws invalid_argument outside an epoch
  void shuffle(uint64_t seed);     // turns shuffling on, from the beginning of epoch 0

  int64_t size() const;            // records in an epoch
  int64_t batch_size() const;
  int64_t batches() const;         // in an epoch
  Shape input_shape() const;       // (C, H, W) of every picture
  int workers() const;
  int64_t memory_bound() const;    // bytes that queue and cache never exceed
  const Transform& transform() const;
  const std::vector<std::string>& classes() const;
  Report report() const;           // pictures that failed while loading, each once

  // for (const Batch& batch : loader): one epoch.
  class Iterator {
   public:
    explicit Iterator(Loader* loader) : loader_(loader) { ++*this; }
    const Batch& operator*() const { return *batch_; }
    Iterator& operator++() { batch_ = loader_->next(); return *this; }
    bool operator!=(std::nullptr_t) const { return batch_.has_value(); }

   private:
    Loader* loader_;
    std::optional<Batch> batch_;
  };
  Iterator begin() { return Iterator(this); }
  std::nullptr_t end() const { return nullptr; }

  struct Impl;  // data/loader.h
  explicit Loader(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// --- data sets ---

struct SplitOptions {
  double train = 0.75;  // share, in (0, 1); kept within one record for each label
  uint64_t seed = 1;
  bool strata = true;   // also keep the share within each stratum as closely as whole records allow
};

struct CheckOptions {
  int workers = -1;      // as in BatchOptions
  bool duplicates = true;  // also tell of equal files in different parts or classes
  std::function<void(int64_t done)> progress = {};  // from any worker; what it throws ends the check
};

struct Split;
struct Checked;

class CAIRN_API Dataset {
 public:
  Dataset() = default;
  Dataset(std::vector<Record> records, std::vector<std::string> classes, Report listing = {}, Limits limits = {});
  int64_t size() const { return int64_t(records().size()); }
  const std::vector<Record>& records() const;
  const std::vector<std::string>& classes() const;
  std::vector<int64_t> class_counts() const;
  const Report& listing() const;       // what was left out while listing
  const Limits& limits() const;
  std::vector<std::string> parts() const;            // "train", "val", "test" as found; empty: not split
  Dataset part(std::string_view name) const;         // throws not_found, naming the parts there are
  // Two disjoint sets whose union is this one. Which record goes where depends on seed and its key
  // alone, not on the order of listing. Data that came split keeps its split: train, and test or else val.
  Split split(const SplitOptions& options) const;
  Dataset map(Transform transform) const;            // replaces the transform
  const Transform& transform() const { return transform_; }
  Loader batch(int64_t size, const BatchOptions& options = {}) const;  // throws on an empty set
  // Decodes every picture once and keeps the usable ones; throws when there is none. Before split(),
  // so that the report counts each item once.
  Checked check(const CheckOptions& options = {}) const;
  // Changes with any key, label, class name, their order, or the size of a file; looks at every file.
  uint64_t fingerprint() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  Transform transform_;
};

struct Split {
  Dataset train, test;
};

struct Checked {
  Dataset usable;
  Report report;          // listing and check together: every item once
  bool grey = false;      // no usable picture has colour
  Size smallest, largest; // each side over all usable pictures
};

struct ListOptions {
  std::vector<std::string> classes;  // given: labels index this list (a model's), others are an error
  bool allow_empty = false;          // accept a class folder without pictures
  Limits limits;
};

// A folder of class folders, pictures at any depth below them; hidden entries are left out, links are
// followed once. Classes are sorted by bytes. A folder whose sub-folders are train/ and val/ or test/
// is one that came split. throws not_found or invalid_argument with what was found instead.
CAIRN_API Dataset image_folder(const std::string& folder, const ListOptions& options = {});

// A CSV list (RFC 4180): path (relative to the list's folder), label, then any columns that name a
// stratum. A header row is recognised by the names path|file|filename|image and label|class in it, may
// order the columns freely and may have a column `split`. Whole-number labels sort by value.
CAIRN_API Dataset csv_list(const std::string& file, const ListOptions& options = {});

// Either, by what `path` is.
CAIRN_API Dataset open(const std::string& path, const ListOptions& options = {});

}  // namespace cairn::data
