package broken

import (
	"slices"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// badNotifier brings words in a wrong way.
type badNotifier struct {
	uct.Notifier
	kind Kind
	put  uct.Putter
	e    *wrap.EP
}

func breakingNotify(k Kind) wrap.Hooks {
	return wrap.Hooks{Iface: retrying, EP: func(e *wrap.EP) {
		e.Has.Notify = &badNotifier{e.Has.Notify, k, e.Has.Put, e}
	}}
}

// NotifyBcopy brings the word alone first. Then it brings it again with the data, or puts
// the data when the word has gone.
func (b *badNotifier) NotifyBcopy(buf []byte, raddr uint64, key uct.RKey, word uint32) error {
	if err := b.Notifier.NotifyBcopy(nil, 0, 0, word); err != nil {
		return err
	}
	if b.kind == NotifyTwice {
		return b.Notifier.NotifyBcopy(buf, raddr, key, word)
	}
	data, rounds := slices.Clone(buf), 0
	later(b.e, func() error {
		if rounds++; rounds < 3 {
			return uct.ErrNoResource
		}
		return b.put.PutBcopy(data, raddr, key)
	})
	return nil
}
