// Debian's RocksDB is not built for TSan, which therefore does not see how its threads synchronise
// and takes their copies of memory for races. No code of this folder runs below RocksDB's frames
// (no listeners, filters or comparators), so this hides no race of ours.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:librocksdb.so\n";
}
