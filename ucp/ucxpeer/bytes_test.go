package ucxpeer_test

import "encoding/binary"

func put(b []byte, v uint64)   { binary.LittleEndian.PutUint64(b, v) }
func toUint64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
