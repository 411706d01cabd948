package pmi

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/gucx/gucx/ucs"
)

// A value of a rank is bytes of any length. A value of a process manager is text of some hundred characters. So Put encodes a
// value as text (base64 with the alphabet for file names, RFC 4648 section 5, without padding) and puts it in pieces, each
// under its own key. The first piece begins with the number of pieces and a dot.

var encoding = base64.RawURLEncoding.Strict()

const (
	// maxValue is the maximum length of a value in bytes, far more than the length of a worker address.
	maxValue = 1 << 20
	// countRoom is the maximum length of the number of pieces and the dot.
	countRoom = len("1398102.")
	// minRoom is the minimum length of a piece that Put accepts.
	minRoom = 2 * countRoom
)

// pieceKey returns the key of one piece of a value of a rank.
func pieceKey(rank int, key string, piece int) string {
	return "gucx-" + strconv.Itoa(rank) + "-" + key + "-" + strconv.Itoa(piece)
}

// checkKey returns an error for a key that a line cannot contain.
func checkKey(key string) error {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r == '=' || unicode.IsSpace(r) }) {
		return fmt.Errorf("pmi: key %.40q: %w", key, ucs.ErrInvalidParam)
	}
	return nil
}

// split encodes a value in pieces of at most room characters.
func split(value []byte, room int) ([]string, error) {
	if len(value) > maxValue || room < minRoom {
		return nil, fmt.Errorf("pmi: value of %d bytes in pieces of %d: %w", len(value), room, ucs.ErrTooLong)
	}
	text := encoding.EncodeToString(value)
	first := min(len(text), room-countRoom)
	pieces := []string{text[:first]}
	for rest := text[first:]; rest != ""; {
		n := min(len(rest), room)
		pieces = append(pieces, rest[:n])
		rest = rest[n:]
	}
	pieces[0] = strconv.Itoa(len(pieces)) + "." + pieces[0]
	return pieces, nil
}

// pieceCount returns the number of pieces from the first piece, and the rest of that piece.
func pieceCount(first string) (n int, rest string, err error) {
	count, rest, ok := strings.Cut(first, ".")
	n, err = strconv.Atoi(count)
	if !ok || err != nil || n < 1 || n > maxValue || strconv.Itoa(n) != count {
		return 0, "", fmt.Errorf("pmi: number of pieces %.20q: %w", count, ucs.ErrInvalidParam)
	}
	return n, rest, nil
}

// join is the inverse of split. It calls get for each piece.
func join(get func(piece int) (string, error)) ([]byte, error) {
	first, err := get(0)
	if err != nil {
		return nil, err
	}
	n, text, err := pieceCount(first)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(text)
	for i := 1; i < n; i++ {
		piece, err := get(i)
		if err != nil {
			return nil, err
		}
		if piece == "" { // split returns no empty piece; maxValue would not limit the number of empty pieces
			return nil, fmt.Errorf("pmi: an empty piece: %w", ucs.ErrInvalidParam)
		}
		if b.WriteString(piece); encoding.DecodedLen(b.Len()) > maxValue {
			return nil, fmt.Errorf("pmi: value: %w", ucs.ErrTooLong)
		}
	}
	value, err := encoding.DecodeString(b.String())
	if err != nil {
		return nil, fmt.Errorf("pmi: value: %w: %w", ucs.ErrInvalidParam, err)
	}
	return value, nil
}
