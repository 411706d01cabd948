package memprot

import (
	"bytes"
	"math"
	"strconv"
)

// textSource reads the mappings as the kernel prints them (proc(5)). If it cannot read them, all memory passes the
// check.
func textSource(read func(name string) ([]byte, error)) source {
	var list []mapping
	text, err := read(mapsFile)
	if err == nil {
		list = parse(text)
	}
	return func(at uint64) (mapping, error) {
		if len(list) == 0 {
			return mapping{end: math.MaxUint64, rights: readable | writable}, nil
		}
		for _, m := range list {
			if m.end > at {
				return m, nil
			}
		}
		return mapping{start: math.MaxUint64}, nil
	}
}

// parse returns the mappings of all valid lines: "start-end perms ...", in hex.
func parse(text []byte) (list []mapping) {
	for line := range bytes.Lines(text) {
		bounds, perms, _ := bytes.Cut(line, []byte{' '})
		low, high, _ := bytes.Cut(bounds, []byte{'-'})
		start, errLow := strconv.ParseUint(string(low), 16, 64)
		end, errHigh := strconv.ParseUint(string(high), 16, 64)
		if errLow != nil || errHigh != nil || len(perms) < 2 {
			continue
		}
		m := mapping{start: start, end: end}
		if perms[0] == 'r' {
			m.rights |= readable
		}
		if perms[1] == 'w' {
			m.rights |= writable
		}
		list = append(list, m)
	}
	return list
}
