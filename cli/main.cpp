// SPDX-License-Identifier: Apache-2.0
// The `cairn` command. Results go to standard output, all else to standard error. Exit codes: 0 done, 1 an
// assertion of the user failed, 2 the user's input is wrong, 3 our own fault, 130 interrupted.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>

#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "cli/verbs.h"

namespace cairn::cli {
namespace {

std::atomic<bool> interrupt{false};
int code = 0;

void on_signal(int) {
  if (interrupt.exchange(true)) ::_exit(130);
}

void install_log() {
  const char* wanted = std::getenv("CAIRN_LOG");  // "debug", "info" or "warning"
  const std::string_view level = wanted ? wanted : "warning";
  const LogLevel least = level == "debug" ? LogLevel::debug : level == "info" ? LogLevel::info : LogLevel::warning;
  set_log_sink([least](LogLevel l, std::string_view category, std::string_view message) {
    if (l >= least) std::cerr << fmt::format("{}: {}\n", category, message);
  });
}

}  // namespace

const std::atomic<bool>& interrupted() { return interrupt; }
void stop_if_interrupted() {
  if (interrupt) fail(ErrorCode::cancelled, "interrupted");
}
void set_exit_code(int c) { code = c; }

int apply_threads(int asked) {
  const int cores = thread_count();
  if (asked > cores)
    std::cerr << fmt::format("note: {} threads asked for, {} usable cores; taking {}\n", asked, cores, cores);
  const int threads = asked <= 0 ? cores : std::min(asked, cores);
  set_thread_count(threads);
  return threads;
}

}  // namespace cairn::cli

int main(int argc, char** argv) {
  using namespace cairn;
  struct sigaction action {};
  action.sa_handler = cli::on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  cli::install_log();

  CLI::App app{"From labelled pictures to a served model.", "cairn"};
  app.set_version_flag("--version", "cairn " CAIRN_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  cairn train --data pictures/ --model resnet18 --epochs 20 --imgsz 128 --out runs/cells\n"
      "  cairn eval --run runs/cells --data pictures/test\n"
      "  cairn predict runs/cells/model.onnx some/folder/*.png\n"
      "  cairn serve --model cells=runs/cells/model.onnx --port 8000\n"
      "`cairn VERB --help` tells the options of a verb. Exit codes: 0 done, 1 an assertion failed,\n"
      "2 wrong input, 3 a fault in Cairn, 130 interrupted.");
  cli::add_train(app);
  cli::add_eval(app);
  cli::add_predict(app);
  cli::add_serve(app);
  cli::add_run(app);
  cli::add_data(app);
  cli::add_opt(app);
  cli::add_debug(app);
  cli::add_bench(app);
  cli::add_doctor(app);
  cli::add_trail(app);
  cli::refuse_overflow(app);

  try {
    app.parse(argc, argv);
    // What could not be written is told, unless the reader has had enough (`| head`).
    errno = 0;
    pollfd reader{STDOUT_FILENO, 0, 0};
    if (!std::cout.flush() && !(::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR)))
      fail(ErrorCode::io, fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    return cli::code;
  } catch (const CLI::ParseError& e) {
    const bool help = e.get_exit_code() == 0;
    app.exit(e, std::cout, std::cerr);
    return help ? 0 : 2;
  } catch (const Error& e) {
    std::cerr << "cairn: " << e.what() << "\n";
    return exit_code(e.code());
  } catch (const std::filesystem::filesystem_error& e) {  // a path that the user gave
    std::cerr << fmt::format("cairn: cannot use {}: {}\n", printable(e.path1()), e.code().message());
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "cairn: out of memory. Take a smaller batch or picture size\n";
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "cairn: internal: " << e.what() << ". This is a fault in Cairn; please report it\n";
    return 3;
  }
}
