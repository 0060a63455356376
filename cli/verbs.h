// SPDX-License-Identifier: Apache-2.0
// One function a verb: adds its subcommand, options and examples to the command line.
#pragma once
#include <CLI/CLI.hpp>
#include <atomic>
#include <cairn/error.h>

namespace cairn::cli {

void add_train(CLI::App& app);    // train.cpp
void add_eval(CLI::App& app);     // eval.cpp
void add_predict(CLI::App& app);  // predict.cpp
void add_serve(CLI::App& app);    // serve.cpp
void add_run(CLI::App& app);      // run.cpp
void add_opt(CLI::App& app);      // opt.cpp
void add_debug(CLI::App& app);    // debug.cpp
void add_bench(CLI::App& app);    // bench.cpp
void add_data(CLI::App& app);     // data.cpp
void add_doctor(CLI::App& app);   // doctor.cpp
void add_trail(CLI::App& app);    // trail.cpp

// True after Ctrl-C or SIGTERM; a second one ends the process at once.
const std::atomic<bool>& interrupted();

// For the middle of long work: throws cancelled after Ctrl-C, which ends the command with 130.
void stop_if_interrupted();

// The exit code when a verb has something to say besides done: 1 an assertion failed, 130 interrupted.
void set_exit_code(int code);

// Threads as asked; 0: every usable core. More than the cores is refused with a note.
int apply_threads(int asked);

// Throws when the file to be written is one of those that are read: no file of the user's is written over.
void refuse_overwrite(const std::string& out, const std::vector<std::string>& inputs);

// Whole numbers beyond 64 bits are refused in every verb; CLI11 takes the nearest that fits.
void refuse_overflow(CLI::App& app);

// Options that several verbs have (options.cpp).
void add_threads(CLI::App* verb, int& threads);
void add_workers(CLI::App* verb, int& workers);
void add_maths(CLI::App* verb, std::string& maths);
// A number within bounds; not NaN, which CLI::Range lets pass.
CLI::Validator number(double least, double most);

}  // namespace cairn::cli
