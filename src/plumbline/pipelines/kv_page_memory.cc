#include "plumbline/pipelines/kv_page_memory.h"

#include "plumbline/tensor/huge_page.h"

namespace plumbline {

Result<KvPageMemory> KvPageMemory::Reserve(const KvLayout& layout, int64_t total_pages, int owner,
                                           int owners) {
  KvPageMemory memory;
  memory.layout_ = layout;
  memory.page_bytes_ = layout.PageBytes();
  memory.total_pages_ = total_pages;
  memory.owner_ = owner;
  memory.owners_ = owners;
  // Huge pages would touch what lies between the pages that are here, and beside small ones that are used.
  const bool huge_pages = owners == 1 && memory.page_bytes_ >= kHugePage;
  ASSIGN_OR_RETURN(memory.buffer_, Buffer::Reserve(total_pages * memory.page_bytes_, huge_pages));
  return memory;
}

}  // namespace plumbline
