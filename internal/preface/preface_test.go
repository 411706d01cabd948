package preface

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAppend_Parse(t *testing.T) {
	b := Append([]byte("x"), 0x0807060504030201)
	assert.Equal(t, "xGXDC\x01\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08", string(b))
	id, err := Parse([Len]byte(b[1:]))
	require.NoError(t, err)
	assert.Equal(t, uint64(0x0807060504030201), id)
}

func TestParse_Malformed(t *testing.T) {
	for at := range offID {
		b := [Len]byte(Append(nil, 7))
		b[at] ^= 0x20
		_, err := Parse(b)
		assert.ErrorIs(t, err, ErrMalformed, "byte %d", at)
	}
	_, err := Parse([Len]byte(Append(nil, 0)))
	assert.ErrorIs(t, err, ErrMalformed)
}

// FuzzParse: what is accepted is what Append writes.
func FuzzParse(f *testing.F) {
	f.Add(Append(nil, 1))
	f.Add(Append(nil, 0))
	f.Add([]byte("GXBS\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03GET /"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < Len {
			return
		}
		id, err := Parse([Len]byte(b))
		if err != nil {
			return
		}
		if !bytes.Equal(Append(nil, id), b[:Len]) || !IsMagic([MagicLen]byte(b)) {
			t.Errorf("%q was parsed as %d", b[:Len], id)
		}
	})
}
