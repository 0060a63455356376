// SPDX-License-Identifier: Apache-2.0
#include <cairn/models.h>
#include <cairn/safetensors.h>
#include <cairn/train.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "data/make.h"
#include "train/metrics.h"

namespace cairn::train {
namespace {

namespace fs = std::filesystem;

// Small grey pictures; in those of class 1 a line goes across.
struct Pictures {
  Tensor x, y;
};
Pictures draw_pictures(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = i % 2, row = random.below(8);
    for (int64_t k = 0; k < 64; ++k)
      x.push_back(float(random.normal()) * 0.4f + (label == 1 && k / 8 == row ? 2.0f : 0.0f));
    y.push_back(label);
  }
  return {Tensor::from(x, {count, 1, 8, 8}), Tensor::from(y, {count})};
}
const std::vector<std::string> kClasses{"whole", "cracked"};

struct Net : nn::Module {
  nn::Conv2d conv{this, "conv", 1, 8, {.kernel = 3, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm{this, "norm", 8};
  nn::Dropout drop{this, "drop", 0.1};
  nn::Linear head{this, "head", 8, 2};
  Tensor forward(const Tensor& x) override { return head(drop(max(relu(norm(conv(x))), {2, 3}))); }
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    std::string path = (fs::temp_directory_path() / "cairn-train-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder = path;
  }
  ~TrainerTest() override { fs::remove_all(folder); }
  fs::path folder;
  const Pictures train_set = draw_pictures(45, 1), test_set = draw_pictures(30, 2);
  Batches batches(int64_t size = 8) const {
    return Batches::of(train_set.x, train_set.y, size, kClasses);
  }
  Batches test_batches() const { return Batches::of(test_set.x, test_set.y, 10, kClasses); }
};

std::vector<std::vector<double>> values(const nn::Module& net) {
  std::vector<std::vector<double>> out;
  for (const Variable& v : net.variables()) out.push_back(v.value().to_doubles());
  return out;
}

// All tensors of a file, but not what was measured by the clock.
std::string tensors_of(const fs::path& file) {
  std::string out;
  const SafetensorsFile f(file);
  for (const auto& [name, tensor] : f.tensors()) {
    out += name + to_string(tensor.type());
    out.append(reinterpret_cast<const char*>(tensor.bytes()), size_t(tensor.type().bytes()));
  }
  return out;
}

TEST_F(TrainerTest, LearnsToTellPicturesApart) {
  for (Mode mode : {Mode::eager, Mode::graph}) {
    Net net;
    Trainer trainer(net, loss::cross_entropy(), optim::momentum({.lr = 0.1}));
    const FitResult result =
        trainer.fit(batches(), {.epochs = 12, .mode = mode, .validation = test_batches()});
    EXPECT_EQ(result.steps, 12 * 6);
    EXPECT_LT(result.epochs.back().train_loss, 0.5 * result.epochs.front().train_loss);
    const Evaluation e = trainer.evaluate(test_batches());
    EXPECT_GE(e.accuracy, 0.9);
    EXPECT_EQ(e.count, 30);
    EXPECT_NE(e.table().find("cracked"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(e.json())["accuracy"], e.accuracy);
  }
}

// A run in pieces: `stops` holds the steps at which it stops, to be resumed.
enum class Stop { by_steps, by_cancel, by_crash };
void run_in_pieces(const fs::path& out, Batches train, Batches test, FitOptions options,
                   std::vector<int64_t> stops, Stop how, nn::Module* (*make)(),
                   std::unique_ptr<nn::Module>& net) {
  options.out = out;
  options.validation = test;
  stops.push_back(0);
  bool first = true;
  for (int64_t stop : stops) {
    net.reset(make());
    Trainer trainer(*net, loss::cross_entropy({.smoothing = 0.1}),
                    optim::adamw({.lr = 0.01, .clip_norm = 1}));
    FitOptions o = options;
    o.resume = !first;
    first = false;
    std::atomic<bool> cancel = false;
    if (stop > 0 && how == Stop::by_steps) o.steps = stop;
    if (stop > 0 && how != Stop::by_steps)
      o.on_progress = [&](const Progress& p) {
        if (p.step < stop) return;
        if (how == Stop::by_crash) throw std::runtime_error("crash");
        cancel = true;
      };
    o.cancel = &cancel;
    if (stop > 0 && how == Stop::by_crash)
      EXPECT_THROW(trainer.fit(train, o), std::runtime_error);
    else
      EXPECT_EQ(trainer.fit(train, o).cancelled, stop > 0 && how == Stop::by_cancel);
  }
}

TEST_F(TrainerTest, ResumesBitForBitFromAnywhere) {
  const auto make = []() -> nn::Module* { return new Net; };
  for (Mode mode : {Mode::eager, Mode::graph})
    for (int64_t accumulate : {1, 4}) {
      FitOptions options{.epochs = 4,
                         .mode = mode,
                         .seed = 5,
                         .schedule = optim::parse_schedule("cosine:warmup=1"),
                         .accumulate = accumulate,
                         .ema = 0.95,
                         .loss_scale = {.kind = LossScale::Kind::dynamic, .interval = 3},
                         .log_every = 1};
      std::unique_ptr<nn::Module> straight, pieces;
      const fs::path a = folder / fmt::format("straight{}{}", int(mode), accumulate);
      run_in_pieces(a, batches(), test_batches(), options, {}, Stop::by_steps, make, straight);
      const auto expected = values(*straight);
      int i = 0;
      for (Stop how : {Stop::by_steps, Stop::by_cancel, Stop::by_crash}) {
        options.save_every = how == Stop::by_crash ? 2 : 0;
        const fs::path b = folder / fmt::format("pieces{}{}{}", int(mode), accumulate, i++);
        const std::vector<int64_t> stops =
            accumulate == 1 ? std::vector<int64_t>{3, 6, 7, 17} : std::vector<int64_t>{1, 2, 5};
        run_in_pieces(b, batches(), test_batches(), options, stops, how, make, pieces);
        EXPECT_EQ(values(*pieces), expected) << "mode " << int(mode) << ", stop " << int(how);
        for (const char* name : {"last.safetensors", "best.safetensors"})
          EXPECT_EQ(tensors_of(b / name), tensors_of(a / name)) << name;
        // The log holds each step once.
        std::ifstream log(b / "log.jsonl");
        int64_t previous = 0, lines = 0;
        for (std::string line; std::getline(log, line); ++lines) {
          const auto j = nlohmann::json::parse(line);
          if (!j.contains("loss")) continue;
          EXPECT_EQ(j["step"], previous + 1);
          previous = j["step"];
        }
        EXPECT_EQ(previous, accumulate == 1 ? 24 : 8);
        const auto ma = nlohmann::json::parse(read_file(a / "metrics.json")),
                   mb = nlohmann::json::parse(read_file(b / "metrics.json"));
        ASSERT_EQ(ma["epochs"].size(), mb["epochs"].size());
        for (size_t e = 0; e < ma["epochs"].size(); ++e)
          for (const char* key : {"step", "train_loss", "train_accuracy", "loss", "accuracy", "lr"})
            EXPECT_EQ(ma["epochs"][e][key], mb["epochs"][e][key]) << key << " of epoch " << e;
        EXPECT_EQ(ma["best_epoch"], mb["best_epoch"]);
      }
    }
}

TEST_F(TrainerTest, IsTheSameRunTwice) {
  std::vector<std::vector<double>> first;
  for (int i = 0; i < 2; ++i) {
    Net net;
    Trainer trainer(net, loss::cross_entropy(), optim::momentum());
    trainer.fit(batches(), {.epochs = 2, .seed = 9});
    if (i == 0)
      first = values(net);
    else
      EXPECT_EQ(values(net), first);
  }
}

TEST_F(TrainerTest, WritesWholeRunDirectories) {
  Net net;
  Trainer trainer(net, loss::cross_entropy(), optim::momentum());
  Recipe recipe;
  recipe.set("model.name", "toy");
  trainer.fit(batches(), {.epochs = 2,
                          .out = folder / "run",
                          .recipe = recipe,
                          .data_report = R"({"found": 45})",
                          .log_every = 1});
  for (const char* name : {"recipe.yaml", "data.json", "log.jsonl", "metrics.json",
                           "last.safetensors", "best.safetensors", "plots/training.png"})
    EXPECT_TRUE(fs::exists(folder / "run" / name)) << name;
  const RunFiles run = open_run(folder / "run");
  EXPECT_EQ(run.recipe.text("model.name"), "toy");
  EXPECT_EQ(run.recipe.integer("train.epochs"), 2);
  EXPECT_EQ(run.recipe.list("train.classes"), kClasses);
  EXPECT_EQ(run.recipe.text("train.optimizer"), optim::to_string(optim::momentum()));
  Net loaded;
  nn::load_weights(loaded, run.weights);
  nn::load_weights(loaded, folder / "run" / "last.safetensors");
  EXPECT_EQ(values(loaded), values(net));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "run" / "data.json"))["check"]["found"], 45);
  trainer.evaluate(test_batches()).write_plots(folder / "run" / "plots");
  EXPECT_TRUE(fs::exists(folder / "run" / "plots" / "confusion.png"));
  EXPECT_TRUE(fs::exists(folder / "run" / "plots" / "roc.png"));

  Net other;
  Trainer again(other, loss::cross_entropy(), optim::momentum());
  EXPECT_THROW(again.fit(batches(), {.epochs = 2, .out = folder / "run"}), Error)
      << "an old run is not overwritten";
  EXPECT_THROW(open_run(folder), Error);
}

TEST_F(TrainerTest, RefusesToResumeAnotherRunAndListsWhatDiffers) {
  const auto fit = [&](const optim::Config& config, FitOptions options, int64_t classes = 2,
                       int64_t batch = 8) {
    const auto net =
        models::make("mlp", {.classes = classes, .in_channels = 1, .width = 0.1, .input_size = 8});
    Trainer trainer(*net, loss::cross_entropy(), config);
    options.out = folder / "run";
    trainer.fit(Batches::of(train_set.x, train_set.y, batch), options);
  };
  fit(optim::momentum(), {.epochs = 1});
  const auto complaint = [&](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "no complaint";
  };
  const std::string adam = complaint([&] { fit(optim::adam(), {.epochs = 2, .resume = true}); });
  EXPECT_NE(adam.find("train.optimizer: was sgd:"), std::string::npos) << adam;
  const std::string rate =
      complaint([&] { fit(optim::momentum({.lr = 0.2}), {.epochs = 2, .resume = true}, 2, 4); });
  EXPECT_NE(rate.find("train.optimizer: was sgd:lr=0.01"), std::string::npos) << rate;
  EXPECT_NE(rate.find("train.batch: was 8, is 4"), std::string::npos) << rate;
  const std::string classes =
      complaint([&] { fit(optim::momentum(), {.epochs = 2, .resume = true}, 3); });
  EXPECT_NE(classes.find("fc3.weight is f32["), std::string::npos) << classes;
  EXPECT_EQ(complaint([&] { fit(optim::momentum(), {.epochs = 2, .resume = true}); }),
            "no complaint");
}

TEST_F(TrainerTest, StopsAtALossThatIsNotFinite) {
  struct Broken : nn::Module {
    nn::Linear head{this, "head", 64, 2};
    Tensor forward(const Tensor& x) override { return log(head(flatten(x)) + 3); }
  };
  for (Mode mode : {Mode::eager, Mode::graph}) {
    const fs::path out = folder / fmt::format("broken{}", int(mode));
    Broken net;
    Trainer trainer(net, loss::cross_entropy(), optim::sgd({.lr = 3}));
    try {
      trainer.fit(batches(), {.epochs = 50, .mode = mode, .out = out});
      FAIL() << "the logarithm of a negative number was not noticed";
    } catch (const Error& e) {
      const std::string what = e.what();
      EXPECT_EQ(exit_code(e.code()), 2);
      EXPECT_NE(what.find("at step"), std::string::npos) << what;
      EXPECT_NE(what.find("log gave"), std::string::npos) << what;
      EXPECT_NE(what.find("trainer_test.cpp"), std::string::npos) << what;
    }
    for (const auto& tensor : values(net))
      for (double v : tensor) ASSERT_TRUE(std::isfinite(v));
    EXPECT_TRUE(fs::exists(out / "last.safetensors"));
  }
}

TEST_F(TrainerTest, LeavesOutALastBatchOfOneWhereNormsNeedMore) {
  struct Pooled : nn::Module {
    nn::Linear a{this, "a", 64, 4};
    nn::BatchNorm2d norm{this, "norm", 4};
    nn::Linear head{this, "head", 4, 2};
    Tensor forward(const Tensor& x) override {
      return head(flatten(relu(norm(reshape(a(flatten(x)), {-1, 4, 1, 1})))));
    }
  } net;
  std::string warnings;
  set_log_sink([&](LogLevel level, std::string_view, std::string_view message) {
    if (level == LogLevel::warning) warnings += message;
  });
  Trainer trainer(net, loss::cross_entropy(), optim::sgd());
  const Pictures five = draw_pictures(5, 3);
  const FitResult result = trainer.fit(Batches::of(five.x, five.y, 4), {.epochs = 3});
  set_log_sink({});
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(result.skipped_batches, 3);
  EXPECT_NE(warnings.find("5 in batches of 4"), std::string::npos) << warnings;
}

TEST_F(TrainerTest, KeepsFrozenPartsAsTheyAre) {
  Net net;
  net.freeze("conv");
  net.freeze("norm");
  const auto before = values(net);
  Trainer trainer(net, loss::cross_entropy(), optim::momentum({.lr = 0.1, .weight_decay = 0.1}));
  trainer.fit(batches(), {.epochs = 2});
  const auto after = values(net);
  const auto all = net.variables();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name().starts_with("head"))
      EXPECT_NE(after[i], before[i]) << all[i].name();
    else
      EXPECT_EQ(after[i], before[i]) << all[i].name();
}

TEST_F(TrainerTest, SaysWhatIsWrongBeforeItStarts) {
  Net net;
  Trainer trainer(net, loss::cross_entropy(), optim::sgd());
  const fs::path out = folder / "none";
  EXPECT_THROW(trainer.fit(Batches::of(train_set.x, train_set.y, 8, {"a", "b", "c"}), {.out = out}),
               Error);
  EXPECT_THROW(
      trainer.fit(Batches::of(Tensor::ones({4, 3, 8, 8}), Tensor::zeros({4}, DType::i64), 2),
                  {.out = out}),
      Error);
  EXPECT_FALSE(fs::exists(out)) << "nothing is written for a run that cannot start";
  EXPECT_THROW(trainer.fit(Batches::of(train_set.x, Tensor::full({DType::i64, {45}}, 2), 8)),
               Error);
  EXPECT_THROW(trainer.fit({}), Error);
  net.freeze();
  EXPECT_THROW(trainer.fit(batches()), Error);
}

TEST_F(TrainerTest, TrainsOnPicturesWithTheSameBitsWhateverTheWorkers) {
  data::make_solar_cells((folder / "cells").string(), {.count = 30, .size = 32});
  const auto [train, test] = data::image_folder((folder / "cells").string()).split({.train = 0.7});
  std::vector<std::vector<double>> first;
  for (int workers : {0, 2}) {
    const auto net = models::make(
        "resnet18", {.classes = 2, .in_channels = 1, .width = 0.125, .small_input = true});
    Trainer trainer(*net, loss::cross_entropy(), optim::momentum());
    const data::Transform grey("grey,random_resized_crop=16,hflip,normalize=0.5:0.25");
    data::Loader validation = test.map(grey.eval()).batch(8, {.workers = workers});
    const FitResult result = trainer.fit(train.map(grey).batch(8, {.workers = workers}),
                                         {.epochs = 2,
                                          .seed = 4,
                                          .validation = validation,
                                          .out = folder / fmt::format("run{}", workers)});
    EXPECT_EQ(result.steps, 2 * 3);
    EXPECT_EQ(trainer.info().input_shape, (Shape{1, 16, 16}));
    EXPECT_EQ(trainer.info().classes, (std::vector<std::string>{"defective", "functional"}));
    EXPECT_EQ(trainer.info().transform, grey.eval().recipe());
    if (workers == 0)
      first = values(*net);
    else
      EXPECT_EQ(values(*net), first);
  }
}

TEST_F(TrainerTest, StopsEarlyWhenNothingGetsBetter) {
  Net net;
  Trainer trainer(net, loss::cross_entropy(), optim::sgd({.lr = 0}));
  const FitResult result =
      trainer.fit(batches(), {.epochs = 30, .validation = test_batches(), .patience = 2});
  EXPECT_EQ(result.epochs.size(), 3u);
}

TEST_F(TrainerTest, ReportsProgressOfEachBatch) {
  Net net;
  Trainer trainer(net, loss::cross_entropy(), optim::sgd());
  int64_t trained = 0, evaluated = 0;
  trainer.fit(batches(),
              {.epochs = 2, .validation = test_batches(), .on_progress = [&](const Progress& p) {
                 if (p.phase == Progress::Phase::evaluate) return void(++evaluated);
                 ++trained;
                 EXPECT_EQ(p.step, trained);
                 EXPECT_EQ(p.steps, 12);
                 EXPECT_EQ(p.batches, 6);
                 EXPECT_EQ(p.batch, (trained - 1) % 6 + 1);
                 EXPECT_GT(p.loss, 0);
               }});
  EXPECT_EQ(trained, 12);
  EXPECT_EQ(evaluated, 6);
}

TEST_F(TrainerTest, TrainsRegressionsToo) {
  struct Line : nn::Module {
    nn::Linear line{this, "line", 2, 1};
    Tensor forward(const Tensor& x) override { return line(x); }
  } net;
  std::vector<float> x, y;
  for (int i = 0; i < 40; ++i) {
    x.push_back(float(std::sin(i))), x.push_back(float(std::cos(3 * i)));
    y.push_back(2 * x[x.size() - 2] - x.back() + 0.5f);
  }
  Trainer trainer(net, loss::mse(), optim::momentum({.lr = 0.1}));
  trainer.fit(Batches::of(Tensor::from(x, {40, 2}), Tensor::from(y, {40, 1}), 10), {.epochs = 40});
  EXPECT_NEAR(net.line.weight.value().values<float>()[0], 2, 1e-3);
  EXPECT_NEAR(net.line.bias.value().values<float>()[0], 0.5, 1e-3);
}

TEST(Recipe, ReadsBackWhatItWrites) {
  Recipe r;
  r.set("model.name", "resnet18");
  r.set("train.lr", 0.1);
  r.set("model.classes", 2);
  r.set("train.ok", true);
  r.set("odd", "a: b # \"c\"\n- d");
  r.set("empty", "");
  r.set_list("classes", {"no", "1", "wind ÜB"});
  const Recipe back = Recipe::parse(r.yaml());
  EXPECT_EQ(back.text("odd"), r.text("odd"));
  EXPECT_EQ(back.text("empty"), "");
  EXPECT_EQ(back.list("classes"), r.list("classes"));
  EXPECT_EQ(back.number("train.lr"), 0.1);
  EXPECT_EQ(back.integer("model.classes"), 2);
  EXPECT_TRUE(back.flag("train.ok"));
  EXPECT_EQ(back.values().size(), r.values().size());
  EXPECT_THROW(back.text("nothing"), Error);
  EXPECT_THROW(back.integer("model.name"), Error);
  EXPECT_THROW(r.set("model", "x"), Error);
  for (const char* bad : {"caf\xE9", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"})
    EXPECT_THROW(r.set("name", std::string_view(bad)), Error) << "a file that nothing reads";
}

TEST(Recipe, RefusesWhatIsNone) {
  std::string deep, wide = "a: 1\n";
  for (int i = 0; i < 100; ++i) deep += std::string(size_t(i), ' ') + "k:\n";
  deep += std::string(100, ' ') + "k: 1\n";
  for (const std::string& text :
       {std::string("- 1\n- 2\n"), std::string("a: [1, 2]"), std::string("a: {b: 1"),
        std::string("just words"), std::string("a: &x {b: *x}"), deep})
    EXPECT_THROW(Recipe::parse(text), Error) << text.substr(0, 40);
}

}  // namespace
}  // namespace cairn::train
