// Package msgrate is the sender-receiver message-rate benchmark of the study of
// scalable endpoints (Zambre, Chandramowlishwaran, Balaji 2018): threads write small
// messages by RDMA, in lists of p work requests, one of q signaled, and each object
// that they use can be shared between x of them.
//
// What a thread does is [Sender.Step]: one call of post or of poll. Nothing else
// runs the benchmark, so that real time, in which each thread loops over its own
// steps, and the virtual time of a model, in which the sender with the smallest
// clock does the next step, measure the same code:
//
//	senders, err := msgrate.Open(dev, nil, cfg)
//	for more := true; more; {
//		more, err = senders.Threads[0].Step()
//	}
//	err = senders.Verify()
//
// A [Rig] is where that happens: it makes the device, says where the messages go, and
// runs the threads.
package msgrate
