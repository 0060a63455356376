// SPDX-License-Identifier: Apache-2.0
// Serves the test models on any free port, which it prints, until its input ends: for
// triton_client.py.
#include <cstdio>

#include "serve/test_models.h"

int main() {
  using namespace cairn::serve;
  Server server({.port = 0});
  server.add(testing::add_model());
  server.add(testing::add_model("2"));
  server.add(testing::picture_model());
  for (const auto& model : testing::echo_models()) server.add(model);
  server.start();
  std::printf("%d\n", server.port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  server.stop();
}
