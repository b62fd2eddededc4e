// The schema of every operator. fastseed/_backend/draw_ops.py infers those that the NumPy reference
// has from the signatures of its implementations; a test compares the two.
#include <torch/csrc/stable/library.h>

#define FS_DRAW(name, parameters)                                                  \
  "draw_" name                                                                     \
  "(Tensor(a0!) out, Tensor keys, Tensor? positions, int[] sizes, int[] strides, " \
  "int offset" parameters ") -> ()"

#define FS_STREAM "int rank_word, int worker, int start) -> ()"
#define FS_KEYED "int key, int tweak, " FS_STREAM
#define FS_NAMED "Tensor scope, int name_lo, int name_hi, " FS_STREAM
#define FS_BANK "(Tensor(a0!) keys, Tensor(a1!) positions, "

STABLE_TORCH_LIBRARY(fastseed, m) {
  m.def(FS_DRAW("bits", ""));
  m.def(FS_DRAW("uniform", ", float span, float shift, float cap"));
  m.def(FS_DRAW("normal", ", float mean, float std"));
  m.def(FS_DRAW("exponential", ", float scale"));
  m.def(FS_DRAW("trunc_normal",
                ", float mean, float std, float middle, float span, float below, float above, "
                "float low, float high"));
  m.def(FS_DRAW("bernoulli", ", int threshold"));
  m.def(FS_DRAW("randint", ", int low, int range"));
  m.def("derive_keys(Tensor(a0!) out, " FS_KEYED);
  m.def("derive_seeds(Tensor(a0!) out, " FS_KEYED);
  m.def("reseed_streams" FS_BANK FS_KEYED);
  m.def("reseed_streams_at" FS_BANK FS_NAMED);
  m.def("reseed_streams_from" FS_BANK
        "Tensor seeds, Tensor? indices, int name_lo, int name_hi) -> ()");
  m.def("shuffle(Tensor(a0!) out, int lo, int hi, int n, int start, int stride) -> ()");
  m.def(
      "sampling_race(Tensor(a0!) scores, Tensor(a1!) tokens, Tensor numbers, Tensor keys, "
      "Tensor positions, Tensor temperature, Tensor threshold, int role, int first, "
      "bool weights) -> ()");
  m.def(
      "sampling_histogram(Tensor(a0!) out, Tensor numbers, Tensor floor, Tensor prefix, "
      "Tensor? greatest, Tensor temperature, int digit, int first) -> ()");
  m.def(
      "dropout(Tensor input, Tensor keys, int[] sizes, int[] strides, int offset, int threshold) "
      "-> Tensor");
  m.def(
      "layer_key(Tensor(a0!) out, Tensor scope, Tensor first_row, int name_lo, int name_hi, "
      "int label, int row_elements) -> ()");
  m.def("digest(Tensor(a0!) sums, Tensor[] memory, Tensor plan) -> ()");
  m.def(
      "derive_seed_grid(Tensor(a0!) out, Tensor indices, Tensor workers, int key, int tweak, "
      "int rank_word) -> ()");                        // CPU alone
  m.def("advise_huge_pages(Tensor(a0!) out) -> ()");  // CPU alone
  m.def("simd_path() -> str");
  m.def("simd_paths() -> str");
  m.def("choose_simd_path(str name) -> ()");
  m.def("loop_table() -> int");
}
