// Compiled models from C++11 on: a program that frees itself, errors as exceptions.
#ifndef TENSORLOOM_HPP
#define TENSORLOOM_HPP

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tensorloom.h"

namespace tensorloom {

// A failure, with the library's message.
class Error : public std::runtime_error {
 public:
  Error(loom_status status, const char *message) : std::runtime_error(message), status_(status) {}
  loom_status status() const { return status_; }

 private:
  loom_status status_;
};

inline void check(loom_status status) {
  if (status != LOOM_OK) throw Error(status, loom_last_error());
}

// What an input or output is.
struct Type {
  loom_dtype dtype;
  std::vector<std::uint64_t> shape;
  std::size_t bytes;
};

// A program ready to run. It is moved, not copied.
class Program {
 public:
  // From a file, or from bytes, which are copied. 0 threads are all cores.
  static Program open(const std::string &path, unsigned threads = 0) {
    Program p;
    check(loom_program_open(path.c_str(), threads, &p.at_));
    return p;
  }
  static Program load(const void *data, std::size_t bytes, unsigned threads = 0) {
    Program p;
    check(loom_program_load(data, bytes, threads, &p.at_));
    return p;
  }
  Program(Program &&other) noexcept : at_(other.at_) { other.at_ = nullptr; }
  Program &operator=(Program &&other) noexcept {
    std::swap(at_, other.at_);
    return *this;
  }
  Program(const Program &) = delete;
  Program &operator=(const Program &) = delete;
  ~Program() { loom_program_free(at_); }

  std::size_t inputs() const { return loom_program_inputs(at_); }
  std::size_t outputs() const { return loom_program_outputs(at_); }
  std::size_t arena() const { return loom_program_arena(at_); }
  Type input(std::size_t i) const { return type(loom_program_input, i); }
  Type output(std::size_t i) const { return type(loom_program_output, i); }

  // Runs it where inputs and outputs lie; the arena is the library's own unless it is given.
  void run(const std::vector<const void *> &in, const std::vector<void *> &out, void *arena = nullptr, std::size_t bytes = 0) const {
    if (in.size() != inputs() || out.size() != outputs()) throw std::invalid_argument("another number of inputs or outputs");
    check(loom_program_run(at_, in.data(), out.data(), arena, bytes));
  }

 private:
  Program() = default;

  Type type(loom_status (*get)(const loom_program *, std::size_t, loom_type *), std::size_t i) const {
    loom_type t;
    check(get(at_, i, &t));
    return Type{t.dtype, std::vector<std::uint64_t>(t.shape, t.shape + t.rank), t.bytes};
  }

  loom_program *at_ = nullptr;
};

}  // namespace tensorloom

#endif  // TENSORLOOM_HPP
