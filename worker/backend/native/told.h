// How functions say that they failed: a text to be freed, or null.
#pragma once

#include <cstring>
#include <exception>

template <typename F>
char* told(F run) {
  try {
    run();
    return nullptr;
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("an exception without a text");
  }
}
