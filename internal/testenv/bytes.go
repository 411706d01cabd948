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
