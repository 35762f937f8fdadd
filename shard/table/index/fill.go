package index

// fillBatch is how many entries a Filler sorts at a time, and fillBits by how many bits of their
// hashes. It takes 1 MB.
const (
	fillBatch = 1 << 16
	fillBits  = 11
)

// Filler adds many entries to an index that was empty. One by one, nearly each would miss the
// processor's caches; sorted, those of one part come one after the other. Cost: O(1) for each.
type Filler struct {
	ix            *Index
	same          func(a, b uint32) bool
	batch, sorted []uint64
	twins         [2]uint32
}

// Fill begins to add about n entries: hardly any will be moved again. No two of them may be the
// same.
func (ix *Index) Fill(n int, same func(a, b uint32) bool) *Filler {
	depth := uint(0)
	for n>>depth > partMax*3/4 {
		depth++
	}
	*ix = Index{seed: ix.seed, fixed: ix.fixed, dir: make([]*part, 1<<depth), depth: depth}
	for i := range ix.dir {
		ix.dir[i] = ix.newPart(depth, (n>>depth)*6/5)
	}
	return &Filler{ix: ix, same: same, batch: make([]uint64, 0, min(n, fillBatch))}
}

// Add adds a number, at the latest when the Filler is done.
func (f *Filler) Add(hash, number uint32) {
	if len(f.batch) == fillBatch {
		f.flush()
	}
	f.batch = append(f.batch, uint64(hash)<<numberBits|uint64(number))
}

// Done adds the rest. It returns two numbers whose keys are equal, of which the second was left
// out; 0, 0: there were none.
func (f *Filler) Done() (first, second uint32) {
	f.flush()
	return f.twins[0], f.twins[1]
}

func (f *Filler) flush() {
	var ends [1 << fillBits]int
	for _, e := range f.batch {
		ends[e>>(64-fillBits)]++
	}
	begin := 0
	for i, n := range ends {
		ends[i] = begin
		begin += n
	}
	if f.sorted == nil {
		f.sorted = make([]uint64, cap(f.batch))
	}
	for _, e := range f.batch {
		at := &ends[e>>(64-fillBits)]
		f.sorted[*at] = e
		*at++
	}
	for _, e := range f.sorted[:len(f.batch)] {
		f.add(e)
	}
	f.batch = f.batch[:0]
}

func (f *Filler) add(entry uint64) {
	p := f.ix.roomFor(uint32(entry >> numberBits))
	i := p.home(uint32(entry >> numberBits))
	for p.entries[i] != 0 {
		if e := p.entries[i]; e>>numberBits == entry>>numberBits && f.same(uint32(e), uint32(entry)) {
			f.twins = [2]uint32{uint32(e), uint32(entry)}
			return
		}
		if i++; i == len(p.entries) {
			i = 0
		}
	}
	p.entries[i] = entry
	p.used++
	f.ix.count++
}
