package ib

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func TestRKey_Golden(t *testing.T) {
	b := appendRKey([]byte{0xaa}, 0x12345678)
	assert.Equal(t, "aa0100000012345678", hex.EncodeToString(b))
	got, err := parseRKey(b[1:])
	require.NoError(t, err)
	assert.EqualValues(t, 0x12345678, got)
}

func TestParseRKey_RejectsInvalid(t *testing.T) {
	for _, in := range []string{"", "0100000012345678ff", "01000000123456", "0200000012345678", "0101000012345678", "0100000112345678"} {
		b, err := hex.DecodeString(in)
		require.NoError(t, err)
		_, err = parseRKey(b)
		assert.ErrorIs(t, err, uct.ErrInvalidRKey, in)
	}
}

func TestStatus(t *testing.T) {
	for s := verbs.WCSuccess; s <= 24; s++ { // one more than enum ibv_wc_status has
		assert.Equal(t, s == verbs.WCSuccess, Status(s) == ucs.StatusOK, s.String())
	}
	for s, want := range map[verbs.WCStatus]ucs.Status{
		verbs.WCLocLenErr:      ucs.StatusTruncated,
		verbs.WCLocProtErr:     ucs.StatusLocalAccess,
		verbs.WCWRFlushErr:     ucs.StatusCanceled,
		verbs.WCRemAccessErr:   ucs.StatusRemoteAccess,
		verbs.WCRemInvReqErr:   ucs.StatusRemoteInvalid,
		verbs.WCRetryExcErr:    ucs.StatusTimedOut,
		verbs.WCRNRRetryExcErr: ucs.StatusRNR,
		verbs.WCRemOpErr:       ucs.StatusConnReset,
		verbs.WCLocQPOpErr:     ucs.StatusInternal,
		verbs.WCFatalErr:       ucs.StatusIOError,
	} {
		assert.Equal(t, want, Status(s), s.String())
	}
}

func FuzzRKey(f *testing.F) {
	f.Add(appendRKey(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := parseRKey(b); err == nil {
			assert.Equal(t, b, appendRKey(nil, k))
		}
	})
}
