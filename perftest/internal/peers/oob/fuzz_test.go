package oob

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzReadFrame decodes bytes of an untrusted peer as a request. A decoded request must not change in a round
// trip.
func FuzzReadFrame(f *testing.F) {
	for _, payload := range []string{
		`{"verb":"hello"}`,
		`{"verb":"open","layer":"uct","params":{"transport":"rc","device":"","fabric":"shm","mem_len":4096}}`,
		`{"verb":"check","layer":"ucp","seed":18446744073709551615,"len":1048576}`,
		`{"verb":"connect","layer":"verbs","address":"AAEC"}`,
		`{"verb":"open","layer":"uct","params":null}`,
		`{"verb":"bye"} {}`,
		`[]`, ``, `{`,
	} {
		frame, err := appendFrame(nil, kindRequest, []byte(payload))
		require.NoError(f, err)
		f.Add(frame)
	}
	f.Add([]byte{0x67, 0x75, 0x70, 0x78, 1, 1, 0, 0, 0xff, 0xff, 0xff, 0xff})

	f.Fuzz(func(t *testing.T, in []byte) {
		payload, err := readFrame(bytes.NewReader(in), kindRequest, func() error { return nil })
		if err != nil {
			return
		}
		var r Request
		if decode(payload, &r) != nil || r.check() != nil {
			return
		}
		text, err := json.Marshal(&r)
		require.NoError(t, err)
		var again Request
		require.NoError(t, decode(text, &again))
		assert.NoError(t, again.check())
		assert.Equal(t, r.Verb, again.Verb)
		assert.Equal(t, r.Params, again.Params)
	})
}
