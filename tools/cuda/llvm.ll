; LLVM code of what a program for another target has beside kernels. `cuda.py` puts names in the marked places.
@ringyard_functions = global [$count x ptr] [$functions]
$declarations
define void @ringyard_prefetch(ptr %place, i32 %0, i32 %1, i32 %2) alwaysinline { ret void }
define ptr @ringyard_load_kernel(ptr %name, ptr %cell) { ret ptr null }
define double @sqrt(double %x) alwaysinline {
  %root = call double @llvm.sqrt.f64(double %x)
  ret double %root
}
declare double @llvm.sqrt.f64(double)

; exceptions: kernels return an error number. The caller sees that it has a name already, and passes it on
@raised = constant { ptr, i32, ptr, ptr, i32 } { ptr null, i32 1, ptr null, ptr null, i32 1 }
define i32 @ringyard.compiled.interfaces.raise_plugin_error(
  ptr %result, ptr %raised, i64 %text, i64 %function, i64 %job, double %got, double %expected, double %there
) {
  store ptr @raised, ptr %raised
  %number = trunc i64 %text to i32
  %error = or i32 %number, 1073741824
  %positive = and i32 %error, 2147483647
  ret i32 %positive
}
define i32 @ringyard.compiled.interfaces._reraise(ptr %result, ptr %raised, i64 %function, i64 %text, i64 %size) {
  store ptr @raised, ptr %raised
  ret i32 1073741823
}

; the entry: each thread takes clusters
declare i32 @$symbol(ptr, ptr, ptr, i64, i64)
declare i64 @ringyard_thread()
declare i64 @ringyard_num_threads()
define $kind void @ringyard_entry(ptr %bundle, i64 %number, i64 %count, ptr %errors) {
begin:
  %result = alloca i64
  %raised = alloca ptr
  %first = call i64 @ringyard_thread()
  %step = call i64 @ringyard_num_threads()
  br label %next
next:
  %b = phi i64 [ %first, %begin ], [ %following, %run ]
  %inside = icmp slt i64 %b, %count
  br i1 %inside, label %run, label %end
run:
  store i64 0, ptr %result
  %status = call i32 @$symbol(ptr %result, ptr %raised, ptr %bundle, i64 %b, i64 %number)
  %returned = load i64, ptr %result
  %own = trunc i64 %returned to i32
  %raises = icmp sgt i32 %status, 0
  %error = select i1 %raises, i32 %status, i32 %own
  %place = getelementptr i32, ptr %errors, i64 %b
  %before = load i32, ptr %place
  %fails = icmp ne i32 %error, 0
  %after = select i1 %fails, i32 %error, i32 %before
  store i32 %after, ptr %place
  %following = add i64 %b, %step
  br label %next
end:
  ret void
}
; --- threads of a GPU
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define i64 @ringyard_thread() {
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %first = mul i32 %block, %size
  %thread = add i32 %first, %lane
  %word = zext i32 %thread to i64
  ret i64 %word
}
define i64 @ringyard_num_threads() {
  %blocks = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %size = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %threads = mul i32 %blocks, %size
  %word = zext i32 %threads to i64
  ret i64 %word
}
; --- threads of a processor, for tests: one
define i64 @ringyard_thread() { ret i64 0 }
define i64 @ringyard_num_threads() { ret i64 1 }
