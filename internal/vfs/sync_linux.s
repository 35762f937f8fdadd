// This file lets the compiler accept functions without a body: those of sync_linux.go are in
// package runtime.
