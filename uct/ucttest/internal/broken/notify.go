package broken

import (
	"slices"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// badNotifier delivers notifications twice, or before the data of their put.
type badNotifier struct {
	uct.Notifier
	fault Fault
	put   uct.Putter
	e     *wrap.EP
}

func breakingNotify(k Fault) wrap.Hooks {
	return wrap.Hooks{Iface: retrying, EP: func(e *wrap.EP) {
		e.Has.Notify = &badNotifier{e.Has.Notify, k, e.Has.Put, e}
	}}
}

// NotifyBcopy first posts the notification without data. For NotifyTwice it then posts the notification with the data;
// for NotifyEarly it puts the data in the third Progress after that.
func (b *badNotifier) NotifyBcopy(buf []byte, raddr uint64, key uct.RKey, word uint32) error {
	if err := b.Notifier.NotifyBcopy(nil, 0, 0, word); err != nil {
		return err
	}
	if b.fault == NotifyTwice {
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
