package testenv

import (
	"bytes"
	"testing"
)

// Editor returns a function that copies b and changes one byte of the copy: input that a decoder must reject.
func Editor(b []byte) func(at int, v byte) []byte {
	return func(at int, v byte) []byte {
		c := bytes.Clone(b)
		c[at] = v
		return c
	}
}

// Pattern returns n bytes that depend on seed: i*7 + i>>8 + seed, so that a byte at a wrong offset below 64 KiB is
// found. It copies 256 bytes at a time, because the race detector would check megabytes one by one.
func Pattern(n, seed int) []byte {
	const row, seventh = 1 << 8, 183 // 7*183 is 1 modulo 256
	b := make([]byte, n)
	for at := 0; at < n; at += row {
		first := (at/row + seed) * seventh & (row - 1)
		copy(b[at:], sevens[first:][:row])
	}
	return b
}

// sevens are the multiples of seven modulo 256, twice.
var sevens = func() (b [2 << 8]byte) {
	for i := range b {
		b[i] = byte(7 * i)
	}
	return b
}()

// RequireBytes fails the test at the first byte that differs.
func RequireBytes(t testing.TB, want, got []byte) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	if len(want) != len(got) {
		t.Fatalf("%d bytes, not %d", len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			t.Fatalf("byte %d of %d is %#x, not %#x", i, len(want), got[i], want[i])
		}
	}
}

// RequireZero fails the test if a byte is not zero.
func RequireZero(t testing.TB, b []byte, msg string) {
	t.Helper()
	if n := len(b) - bytes.Count(b, []byte{0}); n > 0 {
		t.Fatalf("%s: %d bytes are not zero", msg, n)
	}
}
