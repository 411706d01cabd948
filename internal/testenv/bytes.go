package testenv

import "bytes"

// Editor returns copies of b with one byte changed: what a decoder is to refuse.
func Editor(b []byte) func(at int, v byte) []byte {
	return func(at int, v byte) []byte {
		c := bytes.Clone(b)
		c[at] = v
		return c
	}
}

// Pattern is n bytes that differ with seed: i*7 + i>>8 + seed, so that places of up to 64 KiB can be told
// apart. It copies a row of 256 at a time, as tests make megabytes of them, which the race detector would
// look at one by one.
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
