package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"syscall"
)

const (
	// Memory without GOMEMLIMIT.
	defaultMemory = 512 << 20
	// Memory of the runtime and its threads, and the granularity of its heap.
	runtimeMemory = 128 << 20
	openFiles     = 16
)

// limitProcess sets limits that can't be raised again.
func limitProcess() error {
	memory := debug.SetMemoryLimit(-1)
	if memory == math.MaxInt64 {
		memory = defaultMemory
	}
	used, err := usedData()
	if err != nil {
		return err
	}
	limits := []struct {
		resource int
		value    uint64
	}{
		// The parent looks at the memory every 50 ms, in which a text may allocate gigabytes.
		{syscall.RLIMIT_DATA, used + 2*uint64(memory) + runtimeMemory},
		{syscall.RLIMIT_FSIZE, 0},
		{syscall.RLIMIT_CORE, 0},
		{syscall.RLIMIT_NOFILE, openFiles},
	}
	for _, limit := range limits {
		fixed := syscall.Rlimit{Cur: limit.value, Max: limit.value}
		if err := syscall.Setrlimit(limit.resource, &fixed); err != nil {
			return fmt.Errorf("failed to limit resource %d: %w", limit.resource, err)
		}
	}
	return nil
}

// usedData returns the bytes that count against RLIMIT_DATA.
func usedData() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		var kib uint64
		if _, err := fmt.Sscanf(lines.Text(), "VmData: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("no VmData in /proc/self/status")
}
